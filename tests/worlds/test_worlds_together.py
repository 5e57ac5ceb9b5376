"""Answers that are judged together: one call of the reward function, the same rewards in the same order."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polopt.worlds import DatasetReader, EpisodeError, NoisyTasks, SecondChanceTasks, Task, TaskList, Tasks
from polopt.worlds.executors import LOST, EpisodeExecutor, InlineExecutor, ThreadExecutor

ROWS = [{"prompt": f"{i}?", "answer": str(i)} for i in range(6)]
ACTIONS = ["0", "9", "2", "x", "4", "4"]
RIGHT = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]


def one_by_one(completion: str, row: dict) -> float:
    return float(completion == row["answer"])


class Many:
    """A reward function of many completions that keeps how many each call had."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, completions: list[str], answer: list[str]) -> list[bool]:
        self.calls.append(len(completions))
        return [text == right for text, right in zip(completions, answer, strict=True)]


def read(folder: Path, verifier: Any) -> TaskList:
    (folder / "x.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return DatasetReader(verifier).read(folder / "x.jsonl")


def played(grounds: EpisodeExecutor, world: Tasks) -> list[list[Any]]:
    """The steps of every episode, turn by turn."""
    plays = grounds.open(world, [world[i] for i in range(len(world))])
    grounds.reset(plays)
    return [grounds.step(plays, ACTIONS) for _ in range(world.turns)]


AROUND: list[Callable[[Tasks], Tasks]] = [
    lambda tasks: tasks,
    lambda tasks: NoisyTasks(tasks, missed=0.5, fooled=0.5, seed=1),
    lambda tasks: SecondChanceTasks(tasks),
    lambda tasks: SecondChanceTasks(NoisyTasks(tasks, missed=0.5, seed=1)),
]


@pytest.mark.parametrize("around", AROUND, ids=range(4))
@pytest.mark.parametrize(
    "grounds", [InlineExecutor, lambda: ThreadExecutor(2), lambda: ThreadExecutor(2, timeout=60)], ids=range(3)
)
def test_one_call_and_the_same_steps(
    tmp_path: Path, around: Callable[[Tasks], Tasks], grounds: Callable[[], EpisodeExecutor]
) -> None:
    many = Many()
    alone, together = around(read(tmp_path, one_by_one)), around(read(tmp_path, {"verifier": many}))
    steps, others = played(grounds(), together), played(InlineExecutor(), alone)
    assert many.calls == [6] * together.turns
    for found, expected in zip(steps, others, strict=True):
        assert [step[:4] for step in found] == [step[:4] for step in expected]
        assert [step.info["solved"] for step in found] == [step.info["solved"] for step in expected]
    if around is AROUND[0]:
        assert [step.reward for step in steps[0]] == RIGHT


def test_episodes_of_several_worlds_keep_their_order(tmp_path: Path) -> None:
    first, second = Many(), Many()
    (tmp_path / "b").mkdir()
    worlds = [read(tmp_path, first), read(tmp_path / "b", second)]
    plays = [worlds[i % 2].episode(worlds[i % 2][i]) for i in range(6)]
    for play in plays:
        play.reset()
    assert [step.reward for step in InlineExecutor().step(plays, ACTIONS)] == RIGHT
    assert (first.calls, second.calls) == ([3], [3])
    with pytest.raises(EpisodeError, match="call reset"):
        InlineExecutor().step(plays, ACTIONS)
    assert first.calls == [3]


def test_a_subclass_that_steps_its_own_way_is_stepped_its_own_way() -> None:
    from polopt.worlds import OneAnswer, Step

    class Own(OneAnswer):
        def step(self, action: str) -> Step:
            return super().step(action.upper())

    scored: list[str] = []

    def score(completion: str, task: Task) -> tuple[float, dict[str, Any]]:
        scored.append(completion)
        return 1.0, {}

    play = Own(Task("a", "a", "?", None, {}), score, lambda answered: [(0.0, {}) for _ in answered])
    play.reset()
    assert InlineExecutor().step([play], ["x"])[0].reward == 1
    assert scored == ["X"]


def test_in_threads_functions_of_one_completion_run_beside_each_other(tmp_path: Path) -> None:
    """Each waits for all others: one after another, none would ever end."""
    all_here = threading.Barrier(len(ROWS), timeout=30)

    def waits(completion: str, row: dict) -> float:
        all_here.wait()
        return one_by_one(completion, row)

    (steps,) = played(ThreadExecutor(len(ROWS)), read(tmp_path, waits))
    assert [step.reward for step in steps] == RIGHT


def test_of_coroutines_that_are_late_only_those_are_lost(tmp_path: Path) -> None:
    async def reward(completion: str, row: dict) -> float:
        if completion == "x":
            await asyncio.Event().wait()
        return one_by_one(completion, row)

    grounds = ThreadExecutor(2, timeout=0.3)
    (steps,) = played(grounds, read(tmp_path, reward))
    assert [step is LOST for step in steps] == [False, False, False, True, False, False]
    assert [step.reward for step in steps] == RIGHT
    assert grounds.lost == 1


def test_a_call_for_many_that_hangs_loses_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polopt.worlds.executors.GRACE", 0.0)
    never = threading.Event()

    def hangs(completions: list[str], **columns: Any) -> list[float]:
        never.wait(60)
        return [1.0] * len(completions)

    grounds = ThreadExecutor(2, timeout=0.2)
    (steps,) = played(grounds, read(tmp_path, hangs))
    never.set()
    assert all(step is LOST for step in steps)
    assert grounds.lost == len(ROWS)
