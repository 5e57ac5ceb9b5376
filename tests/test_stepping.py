"""The order of a training step, and what an empty batch does in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource, learning
from polopt.sampling import MixedGroups, Select
from polopt.schedules import Schedule
from polopt.stepping import StepHooks, take_step


class NoRows(Select):
    """Leaves no row."""

    def forward(self, experience: po.Experience) -> po.Experience:
        return experience[[]]


def algorithm(**changes: Any) -> po.Algorithm:
    """REINFORCE with a schedule that counts the batches, in groups of 2."""
    counting = Schedule(knots=[(0, 0.0), (10, 1.0)])
    return po.Algorithm(sampling=po.sampling.Rollouts(group=2), reference_tau=counting).but(changes)


class Recorded(StepHooks):
    """The hooks in the order in which they ran, with the batches that the algorithm had counted and the rows given."""

    def __init__(self, algorithm: po.Algorithm) -> None:
        self.algorithm, self.ran = algorithm, list[tuple[str, int, int]]()

    def note(self, hook: str, rows: int) -> None:
        self.ran.append((hook, counted(self.algorithm), rows))

    def provide(self, experience: po.Experience) -> po.Experience:
        self.note("provide", len(experience))
        assert experience.advantage is None
        return experience

    def on_credited(self, experience: po.Experience) -> None:
        self.note("on_credited", len(experience))
        assert experience.advantage is not None

    def begin_update(self, experience: po.Experience, chosen: po.Experience) -> None:
        self.note("begin_update", len(chosen))

    def update(self, experience: po.Experience) -> dict[str, float]:
        self.note("update", len(experience))
        return {"loss": 1.0}

    def end_update(self) -> None:
        self.note("end_update", 0)


def counted(algorithm: po.Algorithm) -> int:
    return int(algorithm.reference_tau.get_buffer("batches"))  # type: ignore[union-attr]


def sampled(algorithm: po.Algorithm, worth: list[float]) -> po.Experience:
    tree = TokenTree.bandit(worth)
    return algorithm.sampling(TreeSource(tree, TabularPolicy(tree), rows=8))


def test_the_order_of_a_step():
    one = algorithm()
    hooks = Recorded(one)
    found = take_step(one, sampled(one, [0.0, 1.0]), hooks)
    names = ("provide", "on_credited", "begin_update", "update")
    assert hooks.ran == [(name, 0, 8) for name in names] + [("end_update", 1, 0)]
    assert found is not None
    assert found.metrics == {"loss": 1.0}
    assert len(found.credited) == len(found.chosen) == 8


def test_a_batch_of_which_selection_leaves_nothing_is_counted_without_an_update():
    one = algorithm(select=[NoRows()])
    hooks = Recorded(one)
    found = take_step(one, sampled(one, [0.0, 1.0]), hooks)
    assert found is not None
    assert (len(found.credited), len(found.chosen), found.metrics) == (8, 0, {})
    assert [name for name, _, _ in hooks.ran] == ["provide", "on_credited", "begin_update", "end_update"]
    assert counted(one) == 1


def test_a_batch_that_sampling_left_empty_is_none():
    """Arms that all pay alike leave no mixed group; the lab's loop goes on without counting."""
    one = algorithm(**{"sampling.select": [MixedGroups()]})
    hooks = Recorded(one)
    batch = sampled(one, [1.0, 1.0])
    assert len(batch) == 0
    assert take_step(one, batch, hooks) is None
    assert hooks.ran == []
    assert counted(one) == 0
    tree = TokenTree.bandit([1.0, 1.0])
    policy = TabularPolicy(tree)
    before = policy.logits.detach().clone()
    loop = learning(one, TreeSource(tree, policy, rows=8), policy, rate=1.0)
    assert [len(next(loop)) for _ in range(3)] == [0, 0, 0]
    assert counted(one) == 0
    assert torch.equal(policy.logits, before)


def test_a_loop_must_say_how_it_updates():
    one = algorithm()
    with pytest.raises(NotImplementedError):
        take_step(one, sampled(one, [0.0, 1.0]), StepHooks())
