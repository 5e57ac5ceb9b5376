"""The settings that every world of a recipe has."""

from __future__ import annotations

import abc
from typing import Annotated, ClassVar, Literal

import pydantic

from polopt.config import Config
from polopt.worlds.protocol import TaskSplit

# A number of tasks, turns or tries, bounded because lists of them are held in memory.
Count = Annotated[int, pydantic.Field(ge=1, le=10**7)]


class World(Config):
    """Settings of one kind of world.

    texts: a file of raw texts on the subject of its tasks, see `read_texts`.
    seed: seed of its tasks, the recipe's if None; set the same value in runs of different seeds that share their tasks.
    """

    # What is known of answers: a verifier's reward of any (`are_verified`), pairs of two, or labels of single ones.
    known: ClassVar[Literal["verified", "pairs", "labels"]] = "verified"

    texts: str | None = None
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**63)] | None = None

    def split(self, seed: int) -> TaskSplit:
        """Builds the tasks with this seed, or with the world's own seed if it has one, see `build`."""
        return self.build(seed if self.seed is None else self.seed)

    def check(self, where: str) -> None:
        """Checks that everything that the settings name exists.

        where: path of the settings in messages.

        Raises:
            ConfigError: something named does not exist.
        """

    @abc.abstractmethod
    def build(self, seed: int) -> TaskSplit:
        """Builds the training and held-out tasks; the same settings and seed give the same tasks."""

    def computing(self) -> str | None:
        """Returns the name of the scorer of its answers if that is compute-bound and never waits, else None."""
        return None
