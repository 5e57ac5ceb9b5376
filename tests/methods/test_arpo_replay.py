"""ARPO's replay: what a success is, whose ratio its row has, and a run of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.source import TreeSource
from polopt.methods.arpo_replay import arpo_replay


def failing_after(scores: list[float], **settings: Any) -> tuple[Any, Any]:
    """Returns a batch of one group whose policy took the second way, after one in which it took the first."""
    tree = TokenTree.bandit(scores)
    policy, algorithm = TabularPolicy(tree), arpo_replay(group=4, **settings)
    source = TreeSource(tree, policy, rows=4, seed=0, needs=frozenset({"old_logp"}))
    for odds in ([1 - 1e-12, 1e-12], [0.1, 0.9]):
        policy.set_probabilities(torch.tensor(odds).double())
        source.refresh()
        source.generator.manual_seed(0)
        batch = algorithm.sampling(source)
    return algorithm, batch


@pytest.mark.parametrize(("success", "replayed"), [(1.0, 0), (0.5, 1)])
def test_a_success_is_what_reaches_the_least_outcome(success: float, replayed: int) -> None:
    _, batch = failing_after([0.6, 0.0], success=success)
    assert int((batch.extras["age"] > 0).sum()) == replayed


def test_the_ratio_is_to_the_policy_of_the_update() -> None:
    """The row was sampled with probability 1 and has 0.1 now: its ratio is 1, and 0.1 to who sampled it."""
    algorithm, batch = failing_after([1.0, 0.0])
    (row,) = (batch.extras["age"] > 0).nonzero().flatten().tolist()
    column = batch.mask[row].nonzero().flatten()
    assert batch.old_logp[row][column].exp().tolist() == pytest.approx([0.1])
    assert batch.rollout_logp[row][column].exp().tolist() == pytest.approx([1.0])
    assert "old_logp" in algorithm.objective.active_fields("reads")
    other = algorithm.but(**{"objective.ratio": {"part": "objectives.TokenRatio"}})
    assert "old_logp" not in other.objective.active_fields("reads")


def test_its_parts_are_grpos_but_for_replay_clip_and_ratio() -> None:
    changed = {path for path, *_ in po.diff(po.method("grpo", group=8, kl=0.0), po.method("arpo_replay"))}
    assert changed == {"sampling.mix", "objective.ratio", "objective.trust.high"}
