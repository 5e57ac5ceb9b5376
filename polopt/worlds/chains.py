"""Letter-rearrangement tasks of several steps, answered with or without written working.

A policy can produce short answers, long answers, and right answers with wrong working.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from typing import Any

from polopt.worlds.answers import OneAnswer
from polopt.worlds.protocol import Episode, Task, TaskSplit

SIGNALS = ("flawed", "working", "needed")
# The operation of each step on a word: r reverses it, l moves its first letter to the end, s swaps its first two.
MOVES: dict[str, Callable[[str], str]] = {
    "r": lambda word: word[::-1],
    "l": lambda word: word[1:] + word[:1],
    "s": lambda word: word[1::-1] + word[2:],
}
# One word in STRIPES is reserved for the held-out tasks.
STRIPES = 5


class Chains:
    """Tasks of applying letter operations to a word: `abcd rl=` means reverse `abcd`, then move the first letter to the
    end.

    The answer is `cbad`, or, with working, the word after every step, `dcba cbad`.

    The reward is 1 if the last word is right. Signals: "working" is 1 where the answer has more than one word; "flawed"
    is 1 where the words before the last differ from the words after each step, in order; "needed" is 1 where the task
    has more than `easy` steps, which is when working is worth writing. The kind is the number of steps.

    steps: fewest and most steps of a task.
    letters: number of letters of a word.
    worked: fraction of the tasks whose solution shows its working.
    easy: most steps of a task that needs no working.
    size: number of tasks; task i is the same for the same seed, on every machine.

    Raises:
        ValueError: a setting is outside its range.
    """

    signals = SIGNALS
    turns = 1

    def __init__(
        self,
        steps: tuple[int, int] = (1, 3),
        *,
        letters: int = 4,
        worked: float = 0.5,
        easy: int = 1,
        size: int,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        if not 1 <= steps[0] <= steps[1] or not 2 <= letters <= 26 or size < 1 or not 0 <= worked <= 1:
            raise ValueError(
                "chains: need 1 <= fewest <= most steps, letters in 2..26, worked in [0, 1] and size >= 1, found "
                f"steps = {steps}, letters = {letters}, worked = {worked}, size = {size}"
            )
        self.steps, self.letters, self.worked, self.easy = steps, letters, worked, easy
        self.size, self.seed, self.heldout = size, seed, heldout

    @classmethod
    def split(cls, steps: tuple[int, int], *, train: int, heldout: int, seed: int, **settings: Any) -> TaskSplit:
        """Returns training and held-out tasks without a word in common; one word in five is held out."""
        return TaskSplit(
            cls(steps, size=train, seed=seed, heldout=False, **settings),
            cls(steps, size=heldout, seed=seed, heldout=True, **settings),
        )

    @property
    def kinds(self) -> list[str]:
        return [f"{n} step{'s' * (n > 1)}" for n in range(self.steps[0], self.steps[1] + 1)]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"{self.seed}/{self.heldout}/{index}")
        while True:
            word = "".join(draw.sample(string.ascii_lowercase, self.letters))
            if (sum(ord(c) * 3**i for i, c in enumerate(word)) % STRIPES == 0) == self.heldout:
                break
        count = draw.randint(*self.steps)
        moves = "".join(draw.choice("".join(MOVES)) for _ in range(count))
        words = _words(word, moves)
        shown = words if draw.random() < self.worked else words[-1:]
        row = {"words": words, "needed": count > self.easy}
        name = f"chains/{self.seed}/{self.heldout:d}/{index}"
        return Task(name, self.kinds[count - self.steps[0]], f"{word} {moves}=", " ".join(shown), row)

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self.score)

    def score(self, answer: str, task: Task) -> tuple[float, dict[str, Any]]:
        words, words_written = task.row["words"], answer.split()
        right, working = words_written[-1:] == words[-1:], len(words_written) > 1
        signals = {
            "flawed": float(working and words_written[:-1] != words[:-1]),
            "working": float(working),
            "needed": float(task.row["needed"]),
        }
        return float(right), {"solved": right, "signals": signals}


def _words(word: str, moves: str) -> list[str]:
    """Returns the word after each move."""
    found = []
    for move in moves:
        word = MOVES[move](word)
        found.append(word)
    return found
