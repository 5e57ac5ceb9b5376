"""Subsets of a world's tasks."""

from __future__ import annotations

from collections.abc import Sequence

from polopt.worlds.protocol import Task, Tasks
from polopt.worlds.wrapped import WrappedTasks


class SubsetTasks(WrappedTasks):
    """The tasks at the indices `index` of other tasks, in that order, with the same episodes."""

    def __init__(self, tasks: Tasks, index: Sequence[int]) -> None:
        super().__init__(tasks)
        self.index = list(index)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[self.index[index]]
