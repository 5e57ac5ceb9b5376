"""Worlds of one turn: a question, one answer, a reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polopt.worlds.protocol import Episode, EpisodeError, Step, Task

# completion, task -> reward, info
Score = Callable[[str, Task], tuple[float, dict[str, Any]]]


class OneAnswer:
    """The episode that terminates after one answer."""

    def __init__(self, task: Task, score: Score) -> None:
        self.task = task
        self._score = score
        self._open = False

    def reset(self) -> str:
        self._open = True
        return self.task.prompt

    def step(self, action: str) -> Step:
        if not self._open:
            raise EpisodeError(f"task {self.task.id} takes one answer after reset(); call reset() first")
        reward, info = self._score(action, self.task)
        self._open = False
        return Step("", reward, terminated=True, truncated=False, info=info)

    def demonstrate(self) -> str | None:
        return self.task.solution


class TaskList:
    """Tasks kept in memory, each taking one answer that `score` judges. signals: as for `signals_of`."""

    in_memory = True

    def __init__(self, tasks: Sequence[Task], score: Score, signals: Sequence[str] = ()) -> None:
        self._tasks = list(tasks)
        self._score = score
        self.signals = tuple(signals)

    @property
    def kinds(self) -> list[str]:
        return sorted({task.kind for task in self._tasks})

    @property
    def turns(self) -> int:
        return 1

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self._score)
