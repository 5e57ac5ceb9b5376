"""Some of a world's tasks."""

from __future__ import annotations

from collections.abc import Sequence

from polopt.worlds.protocol import Episode, Task, Tasks, held_in_memory, signals_of


class SubsetTasks:
    """The tasks at `index` of other tasks, in that order, played as there."""

    def __init__(self, tasks: Tasks, index: Sequence[int]) -> None:
        self.tasks, self.index = tasks, list(index)
        self.signals, self.in_memory = signals_of(tasks), held_in_memory(tasks)

    @property
    def kinds(self) -> list[str]:
        return self.tasks.kinds

    @property
    def turns(self) -> int:
        return self.tasks.turns

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[self.index[index]]

    def episode(self, task: Task) -> Episode:
        return self.tasks.episode(task)
