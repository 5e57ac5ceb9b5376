"""Question-answering tasks whose answers are the arbitrary rules of a book, which cannot be inferred otherwise."""

from __future__ import annotations

import random
from typing import Any

from polopt.worlds.answers import OneAnswer
from polopt.worlds.protocol import Task, TaskSplit

KIND = "rulebook"


class Rulebook:
    """Tasks of recalling a rule, which maps a letter to digits: "a42 b71 c19" is a book of three rules.

    The prompt `3 c?` has the answer `19`; the exact digits have reward 1, any other answer 0. The number in front
    distinguishes tasks with the same question; held-out tasks have other numbers.

    book: the rules.
    shown: if True, each task has a book of its own after its question, the same letters with digits drawn anew, and
        tests reading. If False, the book is `book` and is not in the prompt, and the task tests memory. With the book
        as a hint after the question, " a42 b71 c19", the second form looks like the first.
    size: number of tasks.
    seed: task i is the same for the same seed, on every machine.

    Raises:
        ValueError: the book is not different letters with equally many digits each, or size < 1.
    """

    turns = 1

    def __init__(self, book: str, *, shown: bool, size: int, seed: int = 0, heldout: bool = False) -> None:
        rules = {rule[:1]: rule[1:] for rule in book.split()}
        valid = all(letter.isalpha() and digits.isdigit() for letter, digits in rules.items())
        equal_lengths = len(set(map(len, rules.values()))) == 1 and len(rules) == len(book.split())
        if not valid or not equal_lengths or size < 1:
            raise ValueError(
                "rulebook: need different letters with equally many digits each, as in 'a42 b71', and size >= 1, found "
                f"{book!r} and {size}"
            )
        self.rules, self.shown, self.size, self.seed = rules, shown, size, seed
        self.numbers = range(5, 10) if heldout else range(5)

    @classmethod
    def split(cls, book: str, *, shown: bool, train: int, heldout: int, seed: int) -> TaskSplit:
        """Returns training and held-out tasks and, as texts, the book in 100 orders."""
        orders = [random.Random(f"{seed}/{i}").sample(book.split(), len(book.split())) for i in range(100)]
        return TaskSplit(
            cls(book, shown=shown, size=train, seed=seed),
            cls(book, shown=shown, size=heldout, seed=seed, heldout=True),
            [" ".join(order) for order in orders],
        )

    @property
    def kinds(self) -> list[str]:
        return [KIND]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"{self.seed}/{index}/{self.numbers.start}")
        letter, rules = draw.choice(list(self.rules)), self.rules
        prompt = f"{draw.choice(self.numbers)} {letter}?"
        if self.shown:
            rules = {key: "".join(draw.choices("0123456789", k=len(digits))) for key, digits in rules.items()}
            prompt += "".join(f" {key}{digits}" for key, digits in rules.items())
        name = f"{KIND}/{self.seed}/{self.numbers.start}/{index}"
        return Task(name, KIND, prompt, rules[letter], {"letter": letter})

    def episode(self, task: Task) -> OneAnswer:
        return OneAnswer(task, self.score)

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        return float(text.strip() == task.solution), {}
