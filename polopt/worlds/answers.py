"""Single-turn worlds: a question, one answer, a reward."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from polopt.worlds.protocol import LOST, Episode, EpisodeError, Step, Task

# (completion, task) -> (reward, info)
Score = Callable[[str, Task], tuple[float, dict[str, Any]]]
# Scores many completions in one call, in order; None marks a completion whose scoring exceeded its time limit.
ScoreMany = Callable[[Sequence[tuple[str, Task]]], Sequence[tuple[float, dict[str, Any]] | None]]


class OneAnswer:
    """An episode that terminates after one answer.

    score_many: scores the answers to several such episodes in one call, each with the result that `score` gives alone.
    together: a key shared by the episodes that are better scored in one call even where each could be scored in a
        thread of its own; None for episodes that are scored separately.
    """

    def __init__(
        self, task: Task, score: Score, score_many: ScoreMany | None = None, together: Hashable | None = None
    ) -> None:
        self.task, self.together = task, together
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
        """Steps each episode; answers to episodes with the same `score_many` are scored in one call of it."""
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
            for i, one in zip(places, found, strict=True):
                steps[i] = LOST if one is None else episodes[i]._end(*one)
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
    """Tasks held in memory, each of which takes one answer, scored by `score`.

    signals: as for `signals_of`.
    score_many, together: as for `OneAnswer`.
    """

    in_memory = True

    def __init__(
        self,
        tasks: Sequence[Task],
        score: Score,
        signals: Sequence[str] = (),
        score_many: ScoreMany | None = None,
        together: Hashable | None = None,
    ) -> None:
        self._tasks = list(tasks)
        self._score, self._score_many, self._together = score, score_many, together
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
        return OneAnswer(task, self._score, self._score_many, self._together)


def step_together(episodes: Sequence[Episode], actions: Sequence[str]) -> list[Step]:
    """Steps each episode; episodes of a class with a matching `step_many` (`takes_many`) are stepped in one call."""
    steps: dict[int, Step] = {}
    kinds: dict[type[Any], list[int]] = {}
    for i, episode in enumerate(episodes):
        kinds.setdefault(type(episode), []).append(i)
    for kind, places in kinds.items():
        if takes_many(kind):
            found = kind.step_many([episodes[i] for i in places], [actions[i] for i in places])
        else:
            found = [episodes[i].step(actions[i]) for i in places]
        steps |= dict(zip(places, found, strict=True))
    return [steps[i] for i in range(len(episodes))]


def takes_many(kind: type[Any]) -> bool:
    """Returns True if a class of episodes defines `step_many` in the same class of its MRO as `step`."""
    definer: Any = next((c for c in kind.__mro__ if "step" in vars(c)), None)
    return definer is not None and "step_many" in vars(definer)
