"""Tasks of writing unit tests for small functions; the tests are parsed for habits and smells, and never executed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from polopt.rewards.unit_tests import METRICS, metrics
from polopt.worlds.answers import OneAnswer
from polopt.worlds.protocol import Episode, Task, TaskSplit

FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "low": min,
    "top": max,
}
# Forms of a demonstrated test; only the first is without fault.
FORMS = (
    "def test_{f}_pair():\n    assert {f}({a}, {b}) == {v}",
    "def test_{f}():\n    assert {f}({a}, {b}) == {v}",
    "def test_{f}_pair():\n    assert {v} == {v}",
    "def test_{f}_pair():\n    {f}({a}, {b})",
    "def test_{f}_pair():\n    print({f}({a}, {b}))",
    "def test_{f}_pair():\n    # sum\n    assert {f}({a}, {b}) == {v}",
    "def test_{f}_pair():\n    if {f}({a}, {b}) == {v}: pass",
    "def test_{f}_pair():\n    assert {f}({a}, {b}) == {v}\n    assert {f}({a}, {b}) == {v}",
    "def test_{f}_pair():\n    pass",
)


class UnitTests:
    """Tasks of writing a unit test: `test add(3, 4)` requests a test of the function `add`, such as those in `FORMS`.

    The reward is the mean of the test's `metrics`, 0 for an answer that is no Python; each metric is a signal; a task
    is solved if all are 1. The answer is parsed and never executed, so the correctness of the test is not checked.

    smelly: fraction of the tasks, by their number, whose solution has a fault.
    size: number of tasks; task i is the same for the same seed, on every machine.
    heldout: one pair of arguments in five if True, all others if False.

    Raises:
        ValueError: `smelly` is no fraction, or there are no tasks.
    """

    signals = METRICS
    turns = 1

    def __init__(self, *, smelly: float = 0.7, size: int, seed: int = 0, heldout: bool = False) -> None:
        if size < 1 or not 0 <= smelly <= 1:
            raise ValueError(f"unit-tests: need smelly in [0, 1] and size >= 1, found {smelly} and {size}")
        self.smelly, self.size, self.seed, self.heldout = smelly, size, seed, heldout

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, smelly: float = 0.7) -> TaskSplit:
        """Returns training and held-out tasks without a question in common."""
        return TaskSplit(
            cls(smelly=smelly, size=train, seed=seed), cls(smelly=smelly, size=heldout, seed=seed, heldout=True)
        )

    @property
    def kinds(self) -> list[str]:
        return sorted(FUNCTIONS)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"{self.seed}/{self.heldout}/{index}")
        name = draw.choice(sorted(FUNCTIONS))
        pairs = [(a, b) for a in range(10) for b in range(10) if ((a + b) % 5 == 0) == self.heldout]
        a, b = draw.choice(pairs)
        form = draw.choice(FORMS[1:]) if draw.random() < self.smelly else FORMS[0]
        solution = form.format(f=name, a=a, b=b, v=FUNCTIONS[name](a, b))
        where = "heldout" if self.heldout else "train"
        return Task(f"{name}/{self.seed}/{where}/{index}", name, f"test {name}({a}, {b})", solution, {"focal": name})

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self.score)

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        """Returns the mean of a test's metrics, and each metric as a signal."""
        found = metrics(text, task.row["focal"])
        return sum(found.values()) / len(found), {"signals": found, "solved": all(found.values())}
