"""The settings that every world of a recipe has."""

from __future__ import annotations

import abc
from typing import Annotated, ClassVar

import pydantic

from polopt.config import Config
from polopt.worlds.protocol import TaskSplit

# Tasks, turns and tries: lists of them are held in memory.
Count = Annotated[int, pydantic.Field(ge=1, le=10**7)]


class World(Config):
    """Settings of one kind of world. texts: a file of raw texts on what its tasks are about, see `read_texts`. seed: of
    its tasks, the recipe's if None; runs of different seeds that share their tasks say the same here."""

    # Whether something tells how good an answer is, see `are_verified`.
    verified: ClassVar[bool] = True

    texts: str | None = None
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**63)] | None = None

    def split(self, seed: int) -> TaskSplit:
        """As `build`, with this seed if the world has none of its own."""
        return self.build(seed if self.seed is None else self.seed)

    def check(self, where: str) -> None:
        """Looks up what the settings name. where: their path in messages.

        Raises:
            ConfigError: there is no such thing.
        """

    @abc.abstractmethod
    def build(self, seed: int) -> TaskSplit:
        """Training and held-out tasks; the same for the same settings and seed."""

    def computing(self) -> str | None:
        """The name of what judges its answers, if that computes and never waits for anything."""
        return None
