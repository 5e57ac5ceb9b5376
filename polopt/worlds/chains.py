"""Sums whose working may be written down or left out: short answers, long ones, and right ones with wrong working."""

from __future__ import annotations

import random
from typing import Any

from polopt.worlds.answers import OneAnswer
from polopt.worlds.protocol import Episode, Task, TaskSplit

SIGNALS = ("flawed", "working", "needed")


class Chains:
    """Digits to add up modulo `base`: `3+8+5` is answered by its last digit, `6`, or with working by every sum so far,
    `1 6`.

    Pays 1 if the last digit is right. Signals: "working" is 1 where there is more than one digit; "flawed" where any
    digit before the last is not the sum so far, in order, or some are left out while others are there; "needed" where
    the task has more than `easy` terms, which is when working is worth writing. The kind is the number of terms.

    terms: fewest and most. worked: share of the tasks, by their number, whose solution shows its working. size: number
    of tasks; task i is the same for the same seed, everywhere.

    Raises:
        ValueError: a range that holds nothing.
    """

    signals = SIGNALS
    turns = 1

    def __init__(
        self,
        terms: tuple[int, int] = (2, 5),
        *,
        base: int = 10,
        worked: float = 0.5,
        easy: int = 2,
        size: int,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        if not 2 <= terms[0] <= terms[1] or not 2 <= base <= 10 or size < 1 or not 0 <= worked <= 1:
            raise ValueError(
                "chains: need 2 <= fewest <= most terms, base in 2..10, worked in [0, 1] and size >= 1, found "
                f"terms = {terms}, base = {base}, worked = {worked}, size = {size}"
            )
        self.terms, self.base, self.worked, self.easy = terms, base, worked, easy
        self.size, self.seed, self.heldout = size, seed, heldout

    @classmethod
    def split(cls, terms: tuple[int, int], *, train: int, heldout: int, seed: int, **settings: Any) -> TaskSplit:
        """Two sets without a question in common: one question in five, by its digits, is held out."""
        return TaskSplit(
            cls(terms, size=train, seed=seed, heldout=False, **settings),
            cls(terms, size=heldout, seed=seed, heldout=True, **settings),
        )

    @property
    def kinds(self) -> list[str]:
        return [f"{n} terms" for n in range(self.terms[0], self.terms[1] + 1)]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"{self.seed}/{self.heldout}/{index}")
        while True:
            digits = [draw.randrange(self.base) for _ in range(draw.randint(*self.terms))]
            if (sum(d * 3**i for i, d in enumerate(digits)) % 5 == 0) == self.heldout:
                break
        sums = self._sums(digits)
        shown = sums if draw.random() < self.worked else sums[-1:]
        kind = f"{len(digits)} terms"
        row = {"digits": digits, "needed": len(digits) > self.easy}
        return Task(f"chains/{self.seed}/{index}", kind, "+".join(map(str, digits)) + "=", " ".join(shown), row)

    def _sums(self, digits: list[int]) -> list[str]:
        return [str(sum(digits[: i + 2]) % self.base) for i in range(len(digits) - 1)]

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self.score)

    def score(self, answer: str, task: Task) -> tuple[float, dict[str, Any]]:
        sums, said = self._sums(task.row["digits"]), answer.split()
        right = bool(said) and said[-1] == sums[-1]
        working = len(said) > 1
        signals = {
            "flawed": float(working and said[:-1] != sums[:-1]),
            "working": float(working),
            "needed": float(task.row["needed"]),
        }
        return float(right), {"solved": right, "signals": signals}
