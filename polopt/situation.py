"""The facts of a stage before it begins, from which parts determine whether they can work in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Situation:
    """A stage before it begins.

    stage: its name in the recipe. group: rollouts of one prompt, None where their number varies or others join them.
    limit: tokens that an answer may have. turns: the largest number of answers in an episode. solutions: of the first
    tasks, None where a task has none. kinds: every kind of task. fields: names that the row of each of the first tasks
    has. tokens: how many tokens a text has in the middle of an answer. block: names of the learning parameters in a
    block, which is a part of their name, or, as None, the policy's input embedding.
    """

    stage: str
    group: int | None
    limit: int
    turns: int
    solutions: Sequence[str | None]
    kinds: Sequence[str]
    fields: frozenset[str]
    tokens: Callable[[str], int]
    block: Callable[[str | None], Sequence[str]]
