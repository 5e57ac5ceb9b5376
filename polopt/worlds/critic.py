"""Criticism of worked solutions with a planted mistake; a second, programmed policy then solves the task with the
critique."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from polopt.worlds.answers import OneAnswer
from polopt.worlds.protocol import Episode, Task, TaskSplit

KIND = "critic"
CRITIQUE = re.compile(r"right|wrong ([1-9])(?: so ([0-9]))?")
OPERATIONS = "+-*"


class Critique(NamedTuple):
    """A parsed critique.

    wrong: True if the verdict is that the solution is wrong.
    blamed: number of the step that the critique names as wrong, from 1; 0 if it names none.
    answer: the result that the critique proposes, None if it proposes none.
    """

    wrong: bool
    blamed: int = 0
    answer: int | None = None


def read_critique(text: str) -> Critique | None:
    """Parses `right`, `wrong K` or `wrong K so N`; returns None for any other text."""
    found = CRITIQUE.fullmatch(text.strip())
    if found is None:
        return None
    if found[1] is None:
        return Critique(wrong=False)
    return Critique(True, int(found[1]), None if found[2] is None else int(found[2]))


class Critic:
    """Tasks of criticising a sum in `steps` steps, each modulo `base`; a fraction `share` of them has one wrong step.

    The policy writes `right`, or `wrong K` with the number of the wrong step, optionally followed by ` so N`, its
    proposal for the right answer. The reward is 1 for a right verdict. `Step.info["signals"]`:
        index     1 if the wrong step is named, or a right solution called right
        refined   fraction of `tries` that a second policy solves after a wrong solution is called wrong, else 0
        leaked    1 if the critique contains the right answer

    The second policy is a program. It solves the task with probability `told` if the critique names the wrong step, and
    with probability `alone` otherwise. Its random numbers are seeded by the task, so that critiques of one solution are
    evaluated with common random numbers and differ in reward by their content alone.

    steps: number of steps of a sum.
    operations: the operations of the steps, some of + - *.
    base: modulus of every step.
    share: fraction of the solutions that are wrong.
    tries: attempts of the second policy.
    told: its probability of success after a critique that names the wrong step.
    alone: its probability of success after any other critique.
    leaks: "read" lets the second policy read the answer in a critique and return it as its own; "masked" hides that
        answer from it.
    size: number of tasks.
    seed: task i is the same for the same seed, on every machine.

    Raises:
        ValueError: a number is outside its range.
    """

    signals: ClassVar[tuple[str, ...]] = ("index", "refined", "leaked")

    def __init__(
        self,
        *,
        size: int,
        steps: int = 4,
        operations: str = OPERATIONS,
        base: int = 10,
        share: float = 0.5,
        tries: int = 8,
        told: float = 0.9,
        alone: float = 0.2,
        leaks: Literal["masked", "read"] = "masked",
        seed: int = 0,
    ) -> None:
        if size < 1 or not 1 <= steps <= 9 or tries < 1:
            raise ValueError(f"Critic: need size >= 1, steps in 1..9 and tries >= 1, found {size}, {steps} and {tries}")
        if not 2 <= base <= 10:
            raise ValueError(f"Critic: base must be in 2..10, found {base}")
        if not operations or not set(operations) <= set(OPERATIONS):
            raise ValueError(f"Critic: operations must be some of {OPERATIONS}, found {operations!r}")
        if not all(0 <= p <= 1 for p in (share, told, alone)):
            raise ValueError(f"Critic: share, told and alone must be in [0, 1], found {share}, {told} and {alone}")
        if leaks not in ("masked", "read"):
            raise ValueError(f"Critic: leaks must be 'masked' or 'read', found {leaks!r}")
        self.steps, self.share, self.tries, self.told, self.alone = steps, share, tries, told, alone
        self.operations, self.base, self.leaks, self.seed, self._size = operations, base, leaks, seed, size

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, **settings: Any) -> TaskSplit:
        """Returns training and held-out tasks without a solution in common."""
        heldout_tasks = cls(size=heldout, seed=-1 - seed, **settings)
        prompts = {heldout_tasks[i].prompt for i in range(heldout)}
        return TaskSplit(_ReplacedTasks(cls(size=train, seed=seed, **settings), prompts), heldout_tasks)

    turns: ClassVar[int] = 1

    @property
    def kinds(self) -> list[str]:
        return [KIND]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self._size:
            raise IndexError(f"task {index} of {self._size}")
        return self.task(index, 0)

    def task(self, index: int, version: int) -> Task:
        """Returns task `index`; another `version` is a different task at the same index with the same step wrong."""
        label, numbers = random.Random(f"{self.seed}/{index}"), random.Random(f"{self.seed}/{index}/{version}")
        wrong = label.randrange(1, self.steps + 1) if label.random() < self.share else 0
        while True:
            start = numbers.randrange(self.base)
            moves = [(numbers.choice(self.operations), numbers.randrange(1, self.base)) for _ in range(self.steps)]
            slip = numbers.randrange(1, self.base)
            right, shown = (worked(start, moves, self.base, *planted) for planted in ((), (wrong, slip)))
            if not wrong or right[-1] != shown[-1]:  # a slip that leaves the final result right is no mistake to find
                break
        lines = [f"{i} {op}{n}={value}" for i, ((op, n), value) in enumerate(zip(moves, shown, strict=True), 1)]
        row = {"wrong": wrong, "answer": right[-1], "mood": f"{self.seed}/{index}/{version}/refine"}
        solution = f"wrong {wrong}" if wrong else "right"
        return Task(f"{KIND}/{self.seed}/{index}/{version}", KIND, "\n".join([f"0 {start}", *lines]), solution, row)

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self.score)

    def score(self, answer: str, task: Task) -> tuple[float, dict[str, Any]]:
        """Returns the reward, 1 for a right verdict, and the signals of the critique."""
        critique, wrong = read_critique(answer), task.row["wrong"]
        verdict = critique is not None and critique.wrong == (wrong > 0)
        named = critique is not None and critique.blamed == wrong
        leaked = critique is not None and critique.answer == task.row["answer"]
        refined = self.refine(critique, task) if critique is not None and verdict and wrong else 0.0
        signals = {"index": float(named), "refined": refined, "leaked": float(leaked)}
        return float(verdict), {"solved": verdict and named, "signals": signals}

    def refine(self, critique: Critique, task: Task) -> float:
        """Fraction of `tries` in which the second policy solves the task, given the critique."""
        if self.leaks == "read" and critique.answer is not None:
            return float(critique.answer == task.row["answer"])
        chance = self.told if critique.blamed == task.row["wrong"] else self.alone
        mood = random.Random(task.row["mood"])
        return sum(mood.random() < chance for _ in range(self.tries)) / self.tries


def worked(start: int, moves: Sequence[tuple[str, int]], base: int = 10, wrong: int = 0, slip: int = 0) -> list[int]:
    """Returns the value after each step, modulo `base`; step `wrong` is off by `slip`, and later steps continue from
    its value."""
    values, value = [], start
    for i, (op, number) in enumerate(moves, 1):
        value = {"+": value + number, "-": value - number, "*": value * number}[op] % base
        value = (value + slip) % base if i == wrong else value
        values.append(value)
    return values


class _ReplacedTasks:
    """Tasks of a `Critic` in which another version replaces each task whose prompt is in `prompts`."""

    def __init__(self, tasks: Critic, prompts: set[str]) -> None:
        self.tasks, self.prompts = tasks, prompts
        self.kinds, self.turns, self.signals = tasks.kinds, tasks.turns, tasks.signals

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        for version in range(1, 1000):
            if task.prompt not in self.prompts:
                return task
            task = self.tasks.task(index, version)
        raise ValueError(
            f"Critic: the {len(self.prompts)} held-out solutions leave too few of their kind to learn from; take more "
            "steps, a larger base, or fewer held-out tasks"
        )

    def episode(self, task: Task) -> Episode:
        return self.tasks.episode(task)
