"""Tasks that wrap other tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polopt.worlds.protocol import (
    Episode,
    Task,
    Tasks,
    are_verified,
    has_sections,
    held_in_memory,
    scorers_of,
    signals_of,
)


class WrappedTasks:
    """A wrapper that passes on all attributes and methods of other tasks; subclasses override some of them."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks

    @property
    def kinds(self) -> list[str]:
        return self.tasks.kinds

    @property
    def turns(self) -> int:
        return self.tasks.turns

    @property
    def signals(self) -> tuple[str, ...]:
        return signals_of(self.tasks)

    @property
    def has_sections(self) -> bool:
        return has_sections(self.tasks)

    @property
    def verified(self) -> bool:
        return are_verified(self.tasks)

    @property
    def in_memory(self) -> bool:
        return held_in_memory(self.tasks)

    @property
    def scorers(self) -> Sequence[Mapping[str, Any]]:
        return scorers_of(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]

    def episode(self, task: Task) -> Episode:
        return self.tasks.episode(task)
