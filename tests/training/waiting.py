"""Worlds that wait, hang, die and forget, told to by the action; importable by name, as a user's own file is."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from pathlib import Path
from typing import Any

from polopt.worlds import EpisodeError, Step, Task, TaskList, TaskSplit


@dataclasses.dataclass
class Counter:
    """Adds up the numbers that it is told, over `turns` turns; pays each step 1 over the sum.

    Actions: a number, or a word: "die" ends the process, once for each `marks` folder and task; "die always" always;
    "hang" never returns; "linger" waits for a file `go` in that folder; "stray" makes what it says depend on the
    process; "error" raises. `wait`: seconds a step.
    """

    size: int
    turns: int = 3
    wait: float = 0.0
    marks: str = ""
    kinds: tuple[str, ...] = ("counter",)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        return Task(f"counter/{index}", "counter", f"start {index}", "1", {"start": index})

    def episode(self, task: Task) -> CounterEpisode:
        return CounterEpisode(self, task)


class CounterEpisode:
    def __init__(self, world: Counter, task: Task) -> None:
        self.world, self.task = world, task

    def reset(self) -> str:
        self.sum, self.left, self.stray = self.task.row["start"], self.world.turns, ""
        return self.task.prompt

    def step(self, action: str) -> Step:
        if not self.left:
            raise EpisodeError("over")
        time.sleep(self.world.wait)
        if action == "error":
            raise EpisodeError(f"{self.task.id} was told to fail")
        if action == "hang":
            time.sleep(1e6)
        end = time.monotonic() + 100
        while action == "linger" and not (Path(self.world.marks) / "go").exists():
            if time.monotonic() > end:
                raise EpisodeError(f"{self.task.id} was never told to go on")
            time.sleep(0.02)
        if action == "stray":
            self.stray = f" {os.getpid()}"
        if action == "die always" or (action == "die" and self._first()):
            os._exit(1)
        self.left -= 1
        self.sum += int(action) if action.isdigit() else 1
        note = {"signals": {}, "feedback": f"sum {self.sum}"}
        return Step(f"{self.sum}{self.stray}" if self.left else "", 1 / (1 + self.sum), not self.left, False, note)

    def _first(self) -> bool:
        mark = Path(self.world.marks) / self.task.id.replace("/", "-")
        there = mark.exists()
        mark.touch()
        return not there

    def demonstrate(self) -> str | None:
        return self.task.solution


def counters(seed: int, **settings: Any) -> TaskSplit:
    return TaskSplit(Counter(**settings), Counter(**settings))


def mortal(seed: int, *, marks: str, after: int, wait: float = 0.0) -> TaskSplit:
    """Questions whose answers pay for different characters. The first process that has judged `after` of them ends.
    wait: seconds for each."""
    judged, mark = itertools.count(1), Path(marks) / "died"

    def score(text: str, task: Task) -> tuple[float, dict[str, Any]]:
        if next(judged) == after and not mark.exists():
            mark.touch()
            os._exit(1)
        time.sleep(wait)
        return min(1.0, 0.2 * len(set(text))), {}

    tasks = [Task(f"mortal/{i}", "mortal", f"say {i}", "8", {}) for i in range(60)]
    return TaskSplit(TaskList(tasks[:40], score), TaskList(tasks[40:], score))
