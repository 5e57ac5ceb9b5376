"""Worlds of one turn: a question, one answer, a reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polopt.worlds.protocol import Episode, EpisodeError, Step, Task

# completion, task -> reward, info
Score = Callable[[str, Task], tuple[float, dict[str, Any]]]
# The same of many at once, in their order.
ScoreMany = Callable[[Sequence[tuple[str, Task]]], list[tuple[float, dict[str, Any]]]]


class OneAnswer:
    """The episode that terminates after one answer. score_many: judges the answers to several such episodes at once,
    as `score` judges each."""

    def __init__(self, task: Task, score: Score, score_many: ScoreMany | None = None) -> None:
        self.task = task
        self._score, self._score_many = score, score_many
        self._open = False

    def reset(self) -> str:
        self._open = True
        return self.task.prompt

    def step(self, action: str) -> Step:
        self._check_open()
        return self._end(*self._score(action, self.task))

    @classmethod
    def step_many(cls, episodes: Sequence[OneAnswer], actions: Sequence[str]) -> list[Step]:
        """`step` of each; answers that one world judges are judged together."""
        steps: dict[int, Step] = {}
        together: dict[ScoreMany, list[int]] = {}
        for i, episode in enumerate(episodes):
            episode._check_open()
            if episode._score_many is None:
                steps[i] = episode.step(actions[i])
            else:
                together.setdefault(episode._score_many, []).append(i)
        for score_many, places in together.items():
            found = score_many([(actions[i], episodes[i].task) for i in places])
            steps |= {i: episodes[i]._end(*one) for i, one in zip(places, found, strict=True)}
        return [steps[i] for i in range(len(episodes))]

    def _check_open(self) -> None:
        if not self._open:
            raise EpisodeError(f"task {self.task.id} takes one answer after reset(); call reset() first")

    def _end(self, reward: float, info: dict[str, Any]) -> Step:
        self._open = False
        return Step("", reward, terminated=True, truncated=False, info=info)

    def demonstrate(self) -> str | None:
        return self.task.solution


class TaskList:
    """Tasks kept in memory, each taking one answer that `score` judges. signals: as for `signals_of`. score_many: as
    for `OneAnswer`."""

    def __init__(
        self, tasks: Sequence[Task], score: Score, signals: Sequence[str] = (), score_many: ScoreMany | None = None
    ) -> None:
        self._tasks = list(tasks)
        self._score, self._score_many = score, score_many
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
        return OneAnswer(task, self._score, self._score_many)


def step_together(episodes: Sequence[Episode], actions: Sequence[str]) -> list[Step]:
    """`step` of each episode. Those whose class defines `step_many` beside its `step` are stepped in one call."""
    steps: dict[int, Step] = {}
    kinds: dict[type[Any], list[int]] = {}
    for i, episode in enumerate(episodes):
        kinds.setdefault(type(episode), []).append(i)
    for kind, places in kinds.items():
        definer: Any = next((c for c in kind.__mro__ if "step" in vars(c)), None)
        if definer is not None and "step_many" in vars(definer):
            found = definer.step_many([episodes[i] for i in places], [actions[i] for i in places])
        else:
            found = [episodes[i].step(actions[i]) for i in places]
        steps |= dict(zip(places, found, strict=True))
    return [steps[i] for i in range(len(episodes))]
