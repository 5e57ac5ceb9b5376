"""The tasks of the speed rows: on a CPU the main job's own, with a reward that an untrained model can earn; on a GPU
numbers to read."""

from __future__ import annotations

from random import Random
from typing import Any

from polopt.worlds import build_tasks
from polopt.worlds.answers import TaskList
from polopt.worlds.protocol import Task, TaskSplit


def speed(tasks: dict[str, Any], *, seed: int) -> TaskSplit:
    """`tasks` as a recipe describes them. Every answer is verified as in training, and 1 is added when its
    length is odd: nearly every group then has both good and bad answers, and no library may skip any row."""
    split = build_tasks(tasks, seed=seed)

    def noisy(source: Any) -> TaskList:
        def score(completion: str, task: Task) -> tuple[float, dict[str, Any]]:
            episode = source.episode(task)
            episode.reset()
            return episode.step(completion).reward + len(completion) % 2, {}

        return TaskList([source[i] for i in range(len(source))], score)

    return TaskSplit(noisy(split.train), noisy(split.heldout))


def digits(length: int, train: int, *, seed: int) -> TaskSplit:
    """`train` prompts of `length` digits, more or less by a quarter, whose answers have no reward."""
    random = Random(seed)

    def task(i: int) -> Task:
        count = length + random.randint(-(length // 4), length // 4)
        return Task(f"digits/{i}", "digits", "".join(random.choices("0123456789", k=count)), "0", {})

    nothing = lambda completion, task: (0.0, {})  # noqa: E731
    return TaskSplit(TaskList([task(i) for i in range(train)], nothing), TaskList([task(train)], nothing))
