"""A world of questions that a book of rules answers, and nothing else does."""

from __future__ import annotations

import random
from typing import Any

from polopt.worlds.answers import OneAnswer
from polopt.worlds.protocol import Task, TaskSplit

KIND = "rulebook"


class Rulebook:
    """Which digit goes with a letter is a rule: "a4 b7 c1" is a book of three. A task asks for one of them, "c?", and
    the digit alone pays 1.

    book: the rules. shown: each task has a book of its own, with the same letters and digits drawn anew, behind its
    question: what it takes is to read. Otherwise the book is `book`, which is not shown, and what it takes is to know.
    size: number of tasks. seed: task i is the same for the same seed, everywhere. A number in front tells tasks apart
    that ask the same; the numbers of held-out tasks are others.

    Raises:
        ValueError: not letters with a digit each, or size < 1.
    """

    turns = 1
    kinds = (KIND,)

    def __init__(self, book: str, *, shown: bool, size: int, seed: int = 0, heldout: bool = False) -> None:
        rules = book.split()
        letters = [rule[0] for rule in rules]
        well = all(len(rule) == 2 and rule[0].isalpha() and rule[1].isdigit() for rule in rules)
        if not rules or not well or len(set(letters)) < len(letters):
            raise ValueError(f"Rulebook: book must be letters with a digit each, as 'a4 b7', found {book!r}")
        if size < 1:
            raise ValueError(f"Rulebook: size must be >= 1, found {size}")
        self.rules, self.shown, self.size, self.seed = dict(map(tuple, rules)), shown, size, seed  # type: ignore[arg-type]
        self.numbers = range(5, 10) if heldout else range(5)

    @classmethod
    def split(cls, book: str, *, shown: bool, train: int, heldout: int, seed: int) -> TaskSplit:
        """Two sets of tasks, and as texts the book itself, in 100 orders."""
        tasks = cls(book, shown=shown, size=train, seed=seed)
        orders = [random.Random(f"{seed}/{i}").sample(book.split(), len(tasks.rules)) for i in range(100)]
        others = cls(book, shown=shown, size=heldout, seed=seed, heldout=True)
        return TaskSplit(tasks, others, [" ".join(order) for order in orders])

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"{self.seed}/{index}/{self.numbers.start}")
        letter, number = draw.choice(sorted(self.rules)), draw.choice(self.numbers)
        rules, prompt = self.rules, f"{number} {letter}?"
        if self.shown:
            rules = {letter: str(draw.randrange(10)) for letter in draw.sample(sorted(self.rules), len(self.rules))}
            prompt += "".join(f" {key}{digit}" for key, digit in rules.items())
        name = f"{KIND}/{self.seed}/{self.numbers.start}/{index}"
        return Task(name, KIND, prompt, rules[letter], {"letter": letter})

    def episode(self, task: Task) -> OneAnswer:
        return OneAnswer(task, self.score)

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        return float(text.strip() == task.solution), {}
