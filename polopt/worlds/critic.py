"""Solutions with a planted mistake, for a policy that criticises them; another one solves again by what it says."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from polopt.worlds.answers import OneAnswer
from polopt.worlds.protocol import Episode, Task, TaskSplit

KIND = "critic"
SAID = re.compile(r"right|wrong ([1-9])(?: so ([0-9]))?")
OPERATIONS = "+-*"


class Critique(NamedTuple):
    """wrong: the verdict. blamed: the step that is said to be wrong, from 1. answer: the right result, if it says."""

    wrong: bool
    blamed: int = 0
    answer: int | None = None


def read_critique(text: str) -> Critique | None:
    """`right`, `wrong K`, or `wrong K so N`; None for anything else."""
    found = SAID.fullmatch(text.strip())
    if found is None:
        return None
    if found[1] is None:
        return Critique(wrong=False)
    return Critique(True, int(found[1]), None if found[2] is None else int(found[2]))


class Critic:
    """A sum in `steps` steps, each modulo `base`: one step of some of them is wrong. Say so. operations: some of + - *.

    The policy writes `right`, or `wrong K` with the number of the wrong step; it may add ` so N`, the answer that it
    thinks right. The world pays 1 for a right verdict. `Step.info["signals"]`:

        index     1 if the wrong step is named, or a right solution called right
        refined   of a wrong solution called wrong, the share of `tries` in which a second policy then solves it, else 0
        leaked    1 if the critique gives the right answer away

    The second policy is a program. Told the wrong step it solves with chance `told`, told another one with chance
    `alone`. Its random numbers are the task's: critiques of one solution meet the same second policy in the same mood,
    so that they differ in reward by what they say. leaks: whether it reads the answer in a critique, and then takes it
    over; "masked" hides it.

    size: number of tasks. share: of wrong solutions. seed: task i is the same for the same seed, everywhere.

    Raises:
        ValueError: a number out of its range.
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
        """Two sets of tasks that never show the same solution."""
        kept = cls(size=heldout, seed=-1 - seed, **settings)
        prompts = {kept[i].prompt for i in range(heldout)}
        return TaskSplit(_Without(cls(size=train, seed=seed, **settings), prompts), kept)

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
        """Task `index`; another version is another task in its place, with the same step wrong."""
        label, numbers = random.Random(f"{self.seed}/{index}"), random.Random(f"{self.seed}/{index}/{version}")
        wrong = label.randrange(1, self.steps + 1) if label.random() < self.share else 0
        while True:
            start = numbers.randrange(self.base)
            moves = [(numbers.choice(self.operations), numbers.randrange(1, self.base)) for _ in range(self.steps)]
            slip = numbers.randrange(1, self.base)
            right, shown = (worked(start, moves, self.base, *planted) for planted in ((), (wrong, slip)))
            if not wrong or right[-1] != shown[-1]:  # a slip that comes out right after all is no mistake to find
                break
        lines = [f"{i} {op}{n}={value}" for i, ((op, n), value) in enumerate(zip(moves, shown, strict=True), 1)]
        row = {"wrong": wrong, "answer": right[-1], "mood": f"{self.seed}/{index}/{version}/refine"}
        solution = f"wrong {wrong}" if wrong else "right"
        return Task(f"{KIND}/{self.seed}/{index}/{version}", KIND, "\n".join([f"0 {start}", *lines]), solution, row)

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self.score)

    def score(self, answer: str, task: Task) -> tuple[float, dict[str, Any]]:
        """1 for a right verdict, and what was made of the critique."""
        said, wrong = read_critique(answer), task.row["wrong"]
        verdict = said is not None and said.wrong == (wrong > 0)
        named = said is not None and said.blamed == wrong
        leaked = said is not None and said.answer == task.row["answer"]
        refined = self.refine(said, task) if said is not None and verdict and wrong else 0.0
        signals = {"index": float(named), "refined": refined, "leaked": float(leaked)}
        return float(verdict), {"solved": verdict and named, "signals": signals}

    def refine(self, critique: Critique, task: Task) -> float:
        """Share of tries in which the second policy solves the task, having read the critique."""
        if self.leaks == "read" and critique.answer is not None:
            return float(critique.answer == task.row["answer"])
        chance = self.told if critique.blamed == task.row["wrong"] else self.alone
        mood = random.Random(task.row["mood"])
        return sum(mood.random() < chance for _ in range(self.tries)) / self.tries


def worked(start: int, moves: Sequence[tuple[str, int]], base: int = 10, wrong: int = 0, slip: int = 0) -> list[int]:
    """What each step says, modulo `base`; step `wrong` is off by `slip`, and the rest goes on from there."""
    said, value = [], start
    for i, (op, number) in enumerate(moves, 1):
        value = {"+": value + number, "-": value - number, "*": value * number}[op] % base
        value = (value + slip) % base if i == wrong else value
        said.append(value)
    return said


class _Without:
    """The same tasks, with another version of those whose prompt is among `prompts`."""

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
