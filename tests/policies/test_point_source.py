"""Batches of points: what is drawn, shared and paired."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from polopt.policies.flow import FlowPolicy
from polopt.policies.point_source import PointSource
from polopt.sampling import RolloutRequest

POINTS = torch.arange(12).float().view(6, 2)
CONTEXT, SCORE = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([1.0, 0.0, 0.2, 0.7, 1.0, 1.0])


def source(**changes: Any) -> PointSource:
    policy = FlowPolicy(dimensions=2, contexts=3, hidden=(4,), steps=2, seed=1)
    given = {"points": POINTS, "context": CONTEXT, "score": SCORE}
    ways = {"rows": 4, "draws": 3, "generator": torch.Generator().manual_seed(0), **given, **changes}
    return PointSource(policy, lambda x, context: x.sum(-1) + context, **ways)


def test_rollouts_are_made_for_their_contexts_and_rewarded() -> None:
    there = source()
    batch = there.rollout(RolloutRequest(torch.tensor([2, 0]), torch.tensor([2, 1])))
    assert batch.extras["context"].tolist() == [2, 2, 0] == batch.extras["index"].tolist()
    assert batch.group.tolist() == [0, 0, 1]
    assert torch.allclose(batch.outcome, batch.extras["point"].sum(-1) + batch.extras["context"])
    assert torch.equal(batch.rollout_logp, there.policy.evaluate(batch).logp.detach())
    assert there.usage()["sampled"] == 3


def test_draws_are_shared_in_a_group_and_not_between_groups() -> None:
    batch = source().rollout(RolloutRequest(torch.tensor([0, 1]), 3))
    for name in ("noise", "noise_level"):
        one, other = batch.extras[name][:3], batch.extras[name][3:]
        assert all(torch.equal(one[0], row) for row in one)
        assert all(torch.equal(other[0], row) for row in other)
        assert not torch.equal(one[0], other[0])


def test_pairs_hold_a_better_and_a_worse_point_of_one_context() -> None:
    there = source()
    for _ in range(5):
        batch = there.pairs(4)
        won, lost = batch.outcome.view(2, 2).T
        assert (won > lost).all()
        assert batch.extras["context"].view(2, 2).diff().abs().max() == 0
        assert set(batch.extras["context"].tolist()) == {0, 1}, "the points of context 2 have one score"
        known = {tuple(p): s for p, s in zip(POINTS.tolist(), SCORE.tolist(), strict=True)}
        assert [known[tuple(p)] for p in batch.extras["point"].tolist()] == batch.outcome.tolist()
    assert there.pairs(2, torch.tensor([1])).extras["context"].tolist() == [1, 1]


def test_without_different_scores_there_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="no context has given points of different scores"):
        source(score=torch.ones(6)).pairs(4)


def test_every_point_comes_once_before_any_repeats() -> None:
    there = source()
    seen = torch.cat([there.demonstrate(3).extras["point"] for _ in range(2)])
    assert sorted(seen.tolist()) == sorted(POINTS.tolist())
    rated = source().rated(6)
    known = {tuple(p): s for p, s in zip(POINTS.tolist(), SCORE.tolist(), strict=True)}
    assert [known[tuple(p)] for p in rated.extras["point"].tolist()] == rated.outcome.tolist()


def test_mismatched_points_have_the_context_of_another() -> None:
    batch = source().rated(6, mismatched=True)
    assert batch.extras["mismatched"].tolist() == [False] * 6 + [True] * 6
    own, other = batch.extras["point"][:6], batch.extras["point"][6:]
    assert torch.equal(other, own.roll(1, 0))
    assert torch.equal(batch.extras["context"][6:], batch.extras["context"][:6])
    assert batch.outcome[6:].abs().sum() == 0


def test_a_restored_source_goes_on() -> None:
    one = source()
    one.demonstrate(4)
    state, rng = copy.deepcopy(one.state()), one.generator.get_state()
    there = source()
    there.load(state)
    there.generator.set_state(rng)
    assert torch.equal(one.demonstrate(4).extras["point"], there.demonstrate(4).extras["point"])
