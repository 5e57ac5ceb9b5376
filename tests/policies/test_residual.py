"""A policy that corrects a frozen one: against the frozen one, and the density of the correction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from polopt.networks import ResidualNetwork
from polopt.policies.network import NetworkPolicy


def base(seed: int = 3, **settings: object) -> NetworkPolicy:
    made = NetworkPolicy(observations=3, dimensions=2, hidden=(8, 8), seed=seed, **settings)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in made.actor.parameters():  # a policy that has learned
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    return made


def states(count: int = 50) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(0))


def test_its_mean_is_the_bases_until_it_learns() -> None:
    policy = base()
    made = policy.with_residual(std=0.5)
    mean, log_std = made.law(states())
    assert torch.equal(mean, policy.law(states())[0])
    torch.testing.assert_close(log_std.exp(), torch.full((2,), 0.5))
    assert isinstance(made.actor, ResidualNetwork)
    hidden, copied = (list(net.parameters())[:-2] for net in (made.actor.base, made.actor.residual))
    assert all(torch.equal(a, b) for a, b in zip(hidden, copied, strict=True))


def test_the_density_of_an_action_is_that_of_its_residual() -> None:
    policy = base()
    made = policy.with_residual(std=0.7).double()
    assert isinstance(made.actor, ResidualNetwork)
    torch.nn.init.normal_(made.actor.residual[-1].weight)  # type: ignore[arg-type]
    seen, draw = states().double(), torch.Generator().manual_seed(1)
    acted = made.act(seen, draw)
    with torch.no_grad():
        residual = acted.action - policy.double().law(seen)[0]
        law = torch.distributions.Normal(made.actor.residual(seen), torch.tensor(0.7, dtype=torch.float64))
        expected = law.log_prob(residual).sum(-1)
    torch.testing.assert_close(acted.logp, expected, rtol=1e-6, atol=1e-6)


def test_the_base_does_not_learn() -> None:
    policy = base()
    made = policy.with_residual().requires_grad_(True)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    optimiser = torch.optim.AdamW([p for p in made.parameters() if p.requires_grad], 0.1)
    for _ in range(3):
        optimiser.zero_grad()
        (made.law(states())[0].square().mean() + made.value(states()).square().mean()).backward()
        optimiser.step()
    moved = {name for name, value in made.state_dict().items() if not torch.equal(value, before[name])}
    assert moved
    assert not any(name.startswith("actor.base") for name in moved)
    assert any(name.startswith("actor.residual") for name in moved)
    torch.testing.assert_close(made.actor.base(states()), policy.actor(states()))  # type: ignore[operator]


def test_without_a_base_it_is_the_policy_of_its_residual() -> None:
    policy = base()
    with torch.no_grad():
        for parameter in policy.actor.parameters():
            parameter.zero_()
    made = policy.with_residual()
    assert isinstance(made.actor, ResidualNetwork)
    torch.nn.init.normal_(made.actor.residual[-1].bias)  # type: ignore[arg-type]
    assert torch.equal(made.law(states())[0], made.actor.residual(states()))


def test_it_is_saved_and_copied_with_its_base(tmp_path: Path) -> None:
    made = base().with_residual(std=0.3)
    assert isinstance(made.actor, ResidualNetwork)
    torch.nn.init.normal_(made.actor.residual[-1].weight)  # type: ignore[arg-type]
    made.save(tmp_path)
    loaded = NetworkPolicy.load(tmp_path)
    for each in (loaded, made.frozen()):
        assert torch.equal(each.law(states())[0], made.law(states())[0])
        assert not any(p.requires_grad for name, p in each.named_parameters() if name.startswith("actor.base"))


def test_what_has_no_sum_is_refused() -> None:
    bounds = {"low": [-1.0] * 2, "high": [1.0] * 2}
    with pytest.raises(ValueError, match="a residual is added to the mean of a gaussian head"):
        base(head="beta", **bounds).with_residual()
    with pytest.raises(ValueError, match="normalise = True"):
        base(normalise=True).with_residual()
    with pytest.raises(ValueError, match="std must be > 0, found 0"):
        base().with_residual(std=0)
    with pytest.raises(ValueError, match="has a residual already"):
        base().with_residual().with_residual()
