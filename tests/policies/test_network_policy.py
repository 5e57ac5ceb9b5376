"""The network policy against torch.distributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributions import Categorical, Normal

from polopt.experience import Experience
from polopt.policies.network import LOG_STD, NetworkPolicy

ROWS, STEPS, SEEN = 3, 5, 4
SIZES: list[dict[str, Any]] = [{"actions": 3}, {"dimensions": 2}]


def policy_of(**size: Any) -> NetworkPolicy:
    policy = NetworkPolicy(observations=SEEN, hidden=(6, 5), activation="relu", seed=1, **size).double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return policy


def batch_of(policy: NetworkPolicy) -> Experience:
    g = torch.Generator().manual_seed(0)
    seen = torch.randn(ROWS, STEPS + 1, SEEN, generator=g, dtype=torch.float64)
    acted = [policy.act(seen[:, t], g) for t in range(STEPS)]
    extras = {"observation": seen, "action": torch.stack([a.action for a in acted], 1)}
    mask = torch.ones(ROWS, STEPS, dtype=torch.bool)
    return Experience(mask=mask, rollout_logp=torch.stack([a.logp for a in acted], 1), extras=extras)


def law(policy: NetworkPolicy, seen: torch.Tensor) -> Any:
    output = policy.actor(seen)
    return Categorical(logits=output) if policy.log_std is None else Normal(output, policy.log_std.exp())


@pytest.mark.parametrize("size", SIZES)
def test_log_probability_and_entropy(size: dict[str, int]) -> None:
    policy = policy_of(**size)
    batch = batch_of(policy)
    said = policy.evaluate(batch, {"entropy", "value"})
    expected = law(policy, batch.extras["observation"][:, :-1])
    logp, entropy = expected.log_prob(batch.extras["action"]), expected.entropy()
    if policy.log_std is not None:
        logp, entropy = logp.sum(-1), entropy.sum(-1)
    for found in (said.logp, batch.rollout_logp):
        torch.testing.assert_close(found, logp, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(said.entropy, entropy, rtol=1e-12, atol=1e-12)
    value = policy.critic(batch.extras["observation"])[..., 0]
    assert torch.equal(said.value, value[:, :-1])
    assert torch.equal(said.final_value, value[:, 1:])
    plain = policy.evaluate(batch)
    assert plain.entropy is None
    assert plain.value is None


@pytest.mark.parametrize("size", SIZES)
def test_samples_follow_the_law_and_greedy_is_its_mode(size: dict[str, int]) -> None:
    policy, g = policy_of(**size), torch.Generator().manual_seed(5)
    seen = torch.randn(1, SEEN, generator=g, dtype=torch.float64)
    many = policy.act(seen.expand(40_000, SEEN), g).action
    expected = law(policy, seen)
    if policy.log_std is None:
        share = torch.bincount(many, minlength=3) / len(many)
        torch.testing.assert_close(share.double(), expected.probs[0].detach(), rtol=0, atol=0.01)
    else:
        torch.testing.assert_close(many.mean(0), expected.mean[0].detach(), rtol=0, atol=0.03)
        torch.testing.assert_close(many.std(0), expected.stddev.detach().view(-1), rtol=0.02, atol=0)
    mode = policy.act(seen, g, greedy=True)
    torch.testing.assert_close(mode.action, expected.mode)


def test_spread_stays_within_its_range() -> None:
    policy = policy_of(dimensions=2)
    assert policy.log_std is not None
    batch = batch_of(policy)
    for bound, beyond in ((LOG_STD[0], -50.0), (LOG_STD[1], 9.0)):
        with torch.no_grad():
            policy.log_std.fill_(beyond)
        mean = policy.actor(batch.extras["observation"][:, :-1])
        spread = torch.tensor(bound, dtype=torch.float64).exp()
        at_mean = batch.replace(extras={"action": mean.detach()})
        expected = Normal(mean, spread).log_prob(mean).sum(-1)
        torch.testing.assert_close(policy.evaluate(at_mean).logp, expected)


@pytest.mark.parametrize("size", SIZES)
def test_saved_and_loaded(tmp_path: Path, size: dict[str, int]) -> None:
    policy = NetworkPolicy(observations=SEEN, hidden=(6,), seed=7, **size)
    policy.save(tmp_path)
    again = NetworkPolicy.load(tmp_path)
    assert again.settings == policy.settings
    for name, value in policy.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)


def test_actions_or_dimensions() -> None:
    for sizes in ({}, {"actions": 2, "dimensions": 2}):
        with pytest.raises(ValueError, match="give actions or dimensions"):
            NetworkPolicy(observations=2, **sizes)
