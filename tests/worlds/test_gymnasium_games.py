"""Environments of gymnasium as worlds of turns: what is read, what is an action, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polopt.config import ConfigError
from polopt.worlds import EpisodeError, GymnasiumTasks, build_tasks
from polopt.worlds.gymnasium_games import told

gymnasium = pytest.importorskip("gymnasium")
LAKE = {
    "kind": "gymnasium",
    "id": "FrozenLake-v1",
    "settings": {"is_slippery": False},
    "actions": ["left", "down", "right", "up"],
    "ask": "Walk to 15 from ",
}


class Echo(gymnasium.Env[Any, Any]):
    """Repeats what it is told, and ends at "stop", or at its limit."""

    def __init__(self, limit: int = 3) -> None:
        self.action_space = gymnasium.spaces.Text(5, charset="stopabc")
        self.observation_space = gymnasium.spaces.Text(20, min_length=0)
        self.limit, self.at = limit, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return f"say something {self.np_random.integers(100)}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return f"you said {action}", float(action == "stop"), action == "stop", self.at == self.limit, {}


@pytest.fixture(autouse=True)
def _registered() -> None:
    if "EchoForWorlds-v0" not in gymnasium.registry:
        gymnasium.register("EchoForWorlds-v0", Echo)


def test_choices_by_their_names() -> None:
    split = build_tasks(LAKE, seed=0)
    task = split.train[0]
    assert task.prompt == "Walk to 15 from 0"
    episode = split.train.episode(task)
    with pytest.raises(EpisodeError, match="call reset"):
        episode.step("down")
    episode.reset()
    assert [episode.step(name).observation for name in ("down", " down\n", "right")] == ["4", "8", "9"]
    lost = episode.step("jump")
    assert (lost.observation, lost.reward, lost.over) == ("9", 0.0, False)
    assert lost.info["signals"] == {"malformed": 1.0}
    episode.step("right")
    episode.step("down")
    done = episode.step("right")
    assert (done.reward, done.terminated, done.info["solved"]) == (1.0, True, True)
    with pytest.raises(EpisodeError, match="is over"):
        episode.step("up")
    assert episode.reset() == task.prompt
    hole = [episode.step(name) for name in ("right", "down")][-1]
    assert (hole.terminated, hole.reward, hole.info["solved"]) == (True, 0.0, False)


def test_texts_and_limits() -> None:
    tasks = GymnasiumTasks(id="EchoForWorlds-v0", size=3, seed=1)
    assert len({tasks[i].prompt for i in range(3)}) > 1
    assert tasks[0].prompt == tasks[0].prompt
    episode = tasks.episode(tasks[0])
    assert episode.reset() == tasks[0].prompt
    assert episode.step("abc").observation == "you said abc"
    assert episode.step("xyz").info["signals"] == {"malformed": 1.0}  # no text of the space
    assert not episode.step("abc").over
    last = episode.step("abc")
    assert (last.truncated, last.terminated, last.observation) == (True, False, "")
    heldout = GymnasiumTasks(id="EchoForWorlds-v0", size=3, seed=1, heldout=True)
    assert {heldout[i].row["seed"] for i in range(3)}.isdisjoint({tasks[i].row["seed"] for i in range(3)})


def test_observations_in_words(tmp_path: Path) -> None:
    assert told({"a": np.array([1, 2]), "b": ("x", 3)}, 2) == "a: 1 2; b: x; 3"
    assert told(np.array([[0.5, -1.25], [2, 3]]), 2) == "0.50 -1.25\n2.00 3.00"
    (tmp_path / "words.py").write_text("def place(observation):\n    return f'cell {observation}'\n")
    described = build_tasks(LAKE | {"describe": f"{tmp_path / 'words.py'}:place"}, seed=0)
    assert described.train[0].prompt == "Walk to 15 from cell 0"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "Pendulum-v1", "actions": None, "settings": {}}, "the actions of Pendulum-v1 are a Box"),
        ({"id": "NoSuchGame-v0"}, "NoSuchGame-v0 cannot be made"),
        ({"settings": {"no": 1}}, "cannot be made with"),
        ({"actions": ["left", "right"]}, "has 4 actions"),
        ({"id": "EchoForWorlds-v0", "settings": {}}, "are texts, which have no names"),
        ({"digits": -1}, "digits >= 0"),
    ],
)
def test_what_cannot_be_played_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build_tasks(LAKE | changes, seed=0)
