"""Behaviour policies, and batches of fragments that they play."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Generator

from polopt.claims.problems.uniform_states import UniformStates, table_policy
from polopt.lab.stepping import source_of
from polopt.policies.network import NetworkPolicy
from polopt.sampling import BehaviourUpdate, RecentFragments
from polopt.sampling.behaviour import appended, single_decisions
from polopt.step_source import StepSource


def source(seed: int = 0) -> StepSource:
    return source_of(UniformStates(num_envs=2, seed=seed), table_policy(seed), seed)


def test_pieces_of_a_fragment_are_the_fragment() -> None:
    """Also their observations, of which the last one of a piece is the first one of the next."""
    whole, pieces = source(), source()
    one = whole.fragments(7)
    other = appended(pieces.fragments(3), pieces.fragments(4))
    assert other.mask.shape == (2, 7)
    assert other.extras["observation"].shape == (2, 8, 10)
    for name in ("rollout_logp", "reward", "terminated", "truncated", "mask"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    for name, value in one.extras.items():
        assert torch.equal(value, other.extras[name]), name


def test_rows_of_single_decisions_leave_out_the_mask() -> None:
    batch = source().fragments(5)
    mask = batch.mask.clone()
    mask[0, 1] = mask[1, 4] = False
    rows = single_decisions(batch.replace(mask=mask))
    assert rows.mask.shape == (8, 1)
    assert rows.mask.all()
    assert torch.equal(rows.reward[:, 0], batch.reward[mask])
    assert torch.equal(rows.extras["observation"][:, 0], batch.extras["observation"][:, :5][mask])


def test_a_decision_below_the_clip_has_no_gradient() -> None:
    update = BehaviourUpdate(clip=0.3)
    log_ratio = torch.tensor([0.69, 0.71, 1.0, 2.0]).log().requires_grad_()
    loss, divergence = update._loss(log_ratio)
    (gradient,) = torch.autograd.grad(loss, log_ratio)
    assert torch.allclose(gradient, torch.tensor([0.0, 0.71, 1.0, 2.0]) / 4)
    ratios = (0.69, 0.71, 1.0, 2.0)
    assert divergence == pytest.approx(sum(r - 1 - torch.tensor(r).log().item() for r in ratios) / 4, abs=1e-6)


def test_steps_end_after_the_first_that_was_too_far() -> None:
    batch = source().fragments(50)
    update = BehaviourUpdate(lr=0.3, epochs=50, minibatches=1, max_kl=0.02)
    update(source().policy, batch, Generator())
    assert update.divergences[-1] > 0.02
    assert all(found <= 0.02 for found in update.divergences[:-1])
    free = BehaviourUpdate(lr=0.3, epochs=50, minibatches=1, max_kl=None)
    free(source().policy, batch, Generator())
    assert len(free.divergences) == 50


@pytest.mark.parametrize("vectors", [False, True])
def test_the_weight_of_the_divergence_holds_the_policy_back(vectors: bool) -> None:
    batch, policy = source().fragments(50), table_policy(0)
    if vectors:
        policy = NetworkPolicy(observations=10, dimensions=2, hidden=())
        torch.nn.init.normal_(policy.actor[0].weight, generator=Generator().manual_seed(0))  # type: ignore[index]
        action = torch.randn(2, 50, 2, generator=Generator().manual_seed(1))
        batch = batch.replace(extras={**batch.extras, "action": action})
    moved = []
    for kl in (0.0, 1.0, 10.0):
        update = BehaviourUpdate(lr=0.01, clip=0.9, kl=kl, epochs=20, max_kl=None)
        actor = update(policy, batch, Generator().manual_seed(2))
        with torch.no_grad():
            moved.append(float(policy.law_divergence(policy.laws(batch), actor.laws(batch)).mean()))
    assert moved[0] > 2 * moved[1] > 4 * moved[2] > 0


def test_the_moments_of_adam_are_saved() -> None:
    batch, policy = source().fragments(20), source().policy
    one = BehaviourUpdate(lr=0.1)
    one(policy, batch, Generator().manual_seed(0))
    other = BehaviourUpdate(lr=0.1)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    first, second = (each(policy, batch, Generator().manual_seed(1)) for each in (one, other))
    fresh = BehaviourUpdate(lr=0.1)(policy, batch, Generator().manual_seed(1))
    assert torch.equal(first.actor[0].weight, second.actor[0].weight)
    assert not torch.equal(first.actor[0].weight, fresh.actor[0].weight)
    assert torch.equal(policy.actor[0].weight, table_policy(0).actor[0].weight)  # type: ignore[index]


def test_a_twin_shares_the_statistics_of_observations_and_no_weight() -> None:
    policy = NetworkPolicy(observations=3, actions=2, normalise=True)
    twin = policy.twin()
    assert twin.normaliser is policy.normaliser
    assert not {id(p) for p in twin.parameters()} & {id(p) for p in policy.parameters()}


def test_batches_hold_those_before() -> None:
    part, played = RecentFragments(behaviour=BehaviourUpdate(), steps=6, every=3, recent=3), source()
    batches = [part(played) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 4, 6, 6]
    assert batches[3].extras["age"].tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(batches[3].reward[2:4], batches[2].reward[:2])
    assert len(set(batches[3].group.tolist())) == 6
    part.eval()
    part(played)
    assert torch.equal(part.memory.batches()[0].reward, batches[3].reward[:2])


@pytest.mark.parametrize("changes", [{"every": 5}, {"every": 0}, {"recent": 0}])
def test_fragments_are_whole_pieces(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="every must be a divisor of steps, and recent >= 1, found every = "):
        RecentFragments(behaviour=BehaviourUpdate(), steps=12, **changes)


@pytest.mark.parametrize("changes", [{"clip": 1.0}, {"lr": -1.0}, {"minibatches": 0}, {"max_kl": -0.1}])
def test_an_update_needs_numbers_in_range(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"sampling\.BehaviourUpdate: needs lr, kl, epochs and max_kl >= 0"):
        BehaviourUpdate(**changes)
