"""Missions of MiniGrid in words: what is in sight, by hand, and BabyAI's bot."""

from __future__ import annotations

import numpy as np
import pytest

from polopt.config import ConfigError
from polopt.worlds import MiniGridTasks, build_tasks
from polopt.worlds.minigrid_words import in_words

constants = pytest.importorskip("minigrid.core.constants")


def view(**things: tuple[int, int, str, str, int]) -> np.ndarray:
    """A view of 7 x 7 empty cells with these things (column, row, kind, colour, state)."""
    found = np.zeros((7, 7, 3), dtype=np.uint8)
    found[..., 0] = constants.OBJECT_TO_IDX["empty"]
    for column, row, kind, colour, state in things.values():
        found[column, row] = constants.OBJECT_TO_IDX[kind], constants.COLOR_TO_IDX[colour], state
    return found


def test_what_is_in_sight_is_told_by_its_place() -> None:
    told = in_words(
        {
            "mission": "open the door",
            "image": view(
                door=(3, 5, "door", "blue", 2), ball=(1, 6, "ball", "red", 0), goal=(5, 2, "goal", "green", 0)
            ),
        }
    )
    assert told == (
        "open the door; ahead: locked blue door; red ball 2 left; locked blue door 1 ahead; goal 4 ahead 2 right"
    )


def test_what_is_carried_and_what_is_not_told() -> None:
    told = in_words(
        {
            "mission": "m",
            "image": view(own=(3, 6, "key", "grey", 0), wall=(3, 5, "wall", "grey", 0), w=(2, 2, "wall", "grey", 0)),
        }
    )
    assert told == "m; ahead: wall; carrying grey key"
    assert in_words({"mission": "m", "image": view()}) == "m; ahead: nothing"


def test_the_bot_finishes_its_missions_whoever_acts_in_between() -> None:
    tasks = MiniGridTasks(id="BabyAI-UnlockPickup-v0", turns=60, size=6, seed=0)
    for index in range(6):
        episode = tasks.episode(tasks[index])
        assert episode.reset() == tasks[index].prompt
        for turn in range(60):
            step = episode.step("left" if turn == 1 else episode.demonstrate() or "")
            if step.over:
                break
        assert (step.reward, step.terminated, step.info["solved"]) == (1.0, True, True)
        assert step.info["signals"] == {"malformed": 0.0}


def test_other_answers_are_lost_and_tasks_are_the_same_again() -> None:
    split = build_tasks({"kind": "minigrid", "train": 4, "heldout": 4}, seed=2)
    episode = split.train.episode(split.train[0])
    screen = episode.reset()
    step = episode.step("go to the ball")
    assert (step.observation, step.info["signals"]) == (screen, {"malformed": 1.0})
    again = build_tasks({"kind": "minigrid", "train": 4, "heldout": 4}, seed=2)
    assert [again.train[i].prompt for i in range(4)] == [split.train[i].prompt for i in range(4)]


def test_environments_without_a_bot_have_no_demonstrations() -> None:
    tasks = MiniGridTasks(id="MiniGrid-DoorKey-5x5-v0", size=1)
    episode = tasks.episode(tasks[0])
    episode.reset()
    assert episode.demonstrate() is None
    with pytest.raises(ConfigError, match="cannot be made"):
        MiniGridTasks(id="MiniGrid-NoSuch-v0", size=1)
