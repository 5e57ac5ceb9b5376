"""A wrapper that allows one correction of every answer, for learning self-correction."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from polopt.worlds.answers import step_together
from polopt.worlds.protocol import LOST, Episode, EpisodeError, Step, Task, Tasks
from polopt.worlds.wrapped import WrappedTasks

SECOND_PROMPT = "Look again, and correct the answer if it is wrong:"


class SecondChanceTasks(WrappedTasks):
    """Single-answer tasks with a second attempt: the observation after the first answer is `ask`, whether it was right
    or wrong.

    Each answer has the reward that the task gives it. `solved` is that of the second answer.

    Raises:
        ValueError: the tasks already take more than one answer.
    """

    def __init__(self, tasks: Tasks, *, ask: str = SECOND_PROMPT) -> None:
        if tasks.turns != 1:
            raise ValueError(f"second-chance: the tasks must take one answer, found {tasks.turns} turns")
        super().__init__(tasks)
        self.ask = ask

    @property
    def turns(self) -> int:
        return 2

    def episode(self, task: Task) -> Episode:
        return SecondChanceEpisode(self, task)


class SecondChanceEpisode:
    """An episode of two answers to one question."""

    def __init__(self, world: SecondChanceTasks, task: Task) -> None:
        self.world, self.task, self.turns_left = world, task, 0

    def reset(self) -> str:
        self.turns_left = 2
        self.inner = self.world.tasks.episode(self.task)
        return self.inner.reset()

    @property
    def together(self) -> Hashable | None:
        return getattr(self.inner, "together", None) if self.turns_left else None

    def step(self, action: str) -> Step:
        self._check_open()
        return self._after(self.inner.step(action))

    @classmethod
    def step_many(cls, episodes: Sequence[SecondChanceEpisode], actions: Sequence[str]) -> list[Step]:
        """Steps each episode, see `step_together`."""
        for episode in episodes:
            episode._check_open()
        steps = step_together([episode.inner for episode in episodes], actions)
        return [episode._after(step) for episode, step in zip(episodes, steps, strict=True)]

    def _check_open(self) -> None:
        if not self.turns_left:
            raise EpisodeError(f"task {self.task.id} takes two answers after reset(); call reset() first")

    def _after(self, step: Step) -> Step:
        self.turns_left -= 1
        if not self.turns_left or step is LOST:
            return step
        self.inner = self.world.tasks.episode(self.task)
        self.inner.reset()
        return Step(self.world.ask, step.reward, terminated=False, truncated=False, info=step.info)

    def demonstrate(self) -> str | None:
        """Returns the task's demonstration, for both answers."""
        return self.inner.demonstrate() if self.turns_left else None
