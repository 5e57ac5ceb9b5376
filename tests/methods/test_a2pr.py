"""A2PR's networks and columns against their formulas written out, and a run from a log."""

from __future__ import annotations

import pytest
import torch

from polopt.claims.problems.two_modes import mostly_bad
from polopt.experience import Experience
from polopt.lab.transitions import learned_from
from polopt.methods.a2pr import a2pr
from polopt.network_training import NetworkTraining
from polopt.policies.network import NetworkPolicy
from polopt.sampling import transition_rows


def training(**settings: float) -> tuple[NetworkTraining, Experience]:
    """Returns untrained networks whose target copies differ from them, and ten transitions with their columns."""
    policy = NetworkPolicy(observations=1, dimensions=1, head="deterministic", low=[-1.0], high=[1.0], hidden=(4,))
    algorithm = a2pr(hidden=(6,), decoder=(5,), gamma=0.9, **settings)  # type: ignore[arg-type]
    found = NetworkTraining(policy, algorithm, 1e-3, torch.Generator().manual_seed(0))
    for module in found.targets.values():
        for p in module.parameters():
            p.add_(0.2)
    log = mostly_bad(0, 10)
    log = {**log, "terminated": torch.arange(10) < 3, "next_observation": log["observation"].flip(0)}
    log.pop("following")
    return found, found.relabelled(transition_rows(log, policy.head.support))


def test_the_autoencoders_loss_row_by_row() -> None:
    found, rows = training(divergence=0.3)
    objective = found.specs["autoencoder"].objective
    assert objective is not None
    loss, metrics = objective(rows, found.evaluate(rows, objective))
    state, action = rows.extras["observation"][:, 0], rows.extras["action"][:, 0]
    noise, module = rows.extras["latent_noise"][:, 0], found.modules["autoencoder"]
    mean, log_std = module.encoder(torch.cat([state, action], -1))[:, 0].chunk(2, -1)
    decoded = module.decoder(torch.cat([state, mean + log_std.exp() * noise], -1))[:, 0].tanh()
    better = found.modules["critic"](state, action)[:, 0] > found.modules["value"](state)
    terms = torch.zeros(10)
    for i in range(10):
        kl = torch.distributions.kl_divergence(
            torch.distributions.Normal(mean[i], log_std[i].exp()), torch.distributions.Normal(0.0, 1.0)
        ).mean()
        terms[i] = better[i] * (decoded[i] - action[i]).square().mean() + 0.3 * kl
    torch.testing.assert_close(loss, terms.mean())
    assert metrics["better_than_value"] == better.float().mean()


def test_the_values_target_is_the_lower_of_both_copies() -> None:
    found, rows = training()
    objective = found.specs["value"].objective
    assert objective is not None
    quiet = objective.but({"target.next.noise": 0.0})
    loss, _ = quiet(rows, found.evaluate(rows, quiet))
    state, after = rows.extras["observation"].unbind(1)
    target_policy = found.target_policy
    action = target_policy.propose(after, torch.Generator()).action
    both = torch.cat([m["critic"](after, action) for m in (found.modules, found.targets)], -1)
    target = rows.reward[:, 0] + torch.where(rows.terminated[:, 0], 0, 0.9 * both.amin(-1))
    torch.testing.assert_close(loss, (target - found.modules["value"](state)).square().mean())


def test_the_candidate_is_decoded_from_the_policys_action() -> None:
    found, rows = training()
    state = rows.extras["observation"][:, 0]
    action = found.policy.propose(state, torch.Generator()).action
    decoded = found.modules["autoencoder"](state, action, rows.extras["latent_noise"][:, 0])[:, :1]
    torch.testing.assert_close(rows.extras["candidate_actions"][:, 0, 0], decoded)


def test_the_policys_loss_has_a_gradient_in_the_policy_alone() -> None:
    found, rows = training(threshold=-1e3)
    objective = found.algorithm.objective
    loss, metrics = objective(rows, found.evaluate(rows, objective))
    loss.backward()
    assert all(p.grad is not None for p in found.policy.actor.parameters())
    assert all(p.grad is None for module in found.modules.values() for p in module.parameters())
    assert metrics["AdvantageGuidedError"] > 0


def test_above_every_advantage_it_is_td3_on_the_log() -> None:
    _, networks = learned_from(
        mostly_bad(0, 200), a2pr(hidden=(8,), decoder=(8,), threshold=1e9), head="deterministic", steps=4, seed=0
    )
    rows, objective = training(threshold=1e9)[1], networks.algorithm.objective
    loss, metrics = objective(rows, networks.evaluate(rows, objective))
    assert metrics["AdvantageGuidedError"] == 0
    torch.testing.assert_close(loss, objective.but(regularise=[])(rows, networks.evaluate(rows, objective)).loss)


def test_choices_are_refused() -> None:
    policy = NetworkPolicy(observations=1, actions=3)
    with pytest.raises(ValueError, match="actions are choices; it needs those of a Box"):
        NetworkTraining(policy, a2pr(hidden=(4,), decoder=(4,)), 1e-3, torch.Generator())
    with pytest.raises(ValueError, match="divergence must be >= 0"):
        a2pr(divergence=-1.0)
