"""A wrapper in which the first answer is a plan, which nothing but the policy reads."""

from __future__ import annotations

import dataclasses

from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, Tasks
from polopt.worlds.wrapped import WrappedTasks

PLAN_PROMPT = "First write a plan:"
ACT_PROMPT = "Now follow the plan:"


class PlannedTasks(WrappedTasks):
    """Tasks of which the first answer is a plan, without reward, and the others are the task's own.

    ask: what the prompt ends with. then: what is read after the plan.
    """

    def __init__(self, tasks: Tasks, *, ask: str = PLAN_PROMPT, then: str = ACT_PROMPT) -> None:
        super().__init__(tasks)
        self.ask, self.then = ask, then

    @property
    def turns(self) -> int:
        return self.tasks.turns + 1

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        return dataclasses.replace(task, prompt=f"{task.prompt}\n{self.ask}", solution=None, answer=task.reference)

    def episode(self, task: Task) -> Episode:
        return PlannedEpisode(self, task)


class PlannedEpisode:
    """An episode whose first answer is a plan."""

    def __init__(self, world: PlannedTasks, task: Task) -> None:
        self.world, self.task = world, task
        self.inner = world.tasks.episode(task)
        self.open, self.planned = False, False

    def reset(self) -> str:
        self.inner.reset()
        self.open, self.planned = True, False
        return self.task.prompt

    def step(self, action: str) -> Step:
        if not self.open:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        if not self.planned:
            self.planned = True
            return Step(self.world.then, 0.0, terminated=False, truncated=False, info={"solved": False})
        step = self.inner.step(action)
        self.open = not step.over
        return step

    def demonstrate(self) -> str | None:
        """Returns the task's own demonstration; that of the plan is the first answer of it."""
        return self.inner.demonstrate() if self.open else None
