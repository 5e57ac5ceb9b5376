"""Several actions in a decision: environments, worlds, and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import test_control_runs
import test_transition_runs
import torch
from tiny_runs import lines

from polopt.claims.problems.reaches import Reach
from polopt.config import ConfigError
from polopt.training.control.environments import make_copies
from polopt.training.control.recipe import EnvironmentSpec
from polopt.training.launch import train
from polopt.worlds.control import ActionChunk, ChunkedWorld


def test_a_chunk_is_its_actions_one_after_the_other() -> None:
    plain, chunked = gymnasium.make("Pendulum-v1"), ActionChunk(gymnasium.make("Pendulum-v1"), 4)
    assert chunked.action_space.shape == (4,)
    first, _ = plain.reset(seed=3)
    assert np.array_equal(first, chunked.reset(seed=3)[0])
    draw = np.random.default_rng(0)
    for _ in range(50):
        actions = draw.uniform(-2, 2, 4).astype(np.float32)
        found, total, _, truncated, _ = chunked.step(actions)
        steps = [plain.step(actions[i : i + 1]) for i in range(4)]
        assert np.array_equal(found, steps[-1][0])
        assert total == pytest.approx(sum(float(step[1]) for step in steps))
        assert truncated == steps[-1][3]
    assert truncated  # after 200 steps


class Ending(gymnasium.Env[Any, Any]):
    """An episode of five steps, each worth its number."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.full(1, self.time, np.float32), float(self.time), self.time == 5, False, {}


def test_an_episode_ends_within_a_chunk() -> None:
    env = ActionChunk(Ending(), 3)
    env.reset()
    assert env.step(np.zeros(3, np.float32))[1:3] == (6.0, False)
    observation, reward, terminated, _, _ = env.step(np.zeros(3, np.float32))
    assert (float(observation[0]), reward, terminated) == (5.0, 9.0, True)


def test_a_world_in_chunks_is_the_world() -> None:
    """Until episodes end, whose copies then have no reward."""
    plain, chunked = Reach(num_envs=40, horizon=20), ChunkedWorld(Reach(num_envs=40, horizon=20), 5)
    assert chunked.horizon == 4
    first, _ = plain.reset(seed=1)
    assert torch.equal(first, chunked.reset(seed=1)[0])
    toward = (first[:, 2:] - first[:, :2]).clamp(-1, 1)
    _, reward, terminated, _, info = chunked.step(toward.repeat(1, 5))
    total, over = torch.zeros(40), torch.zeros(40, dtype=torch.bool)
    for _ in range(5):
        each, ends = plain.advance(toward)
        total += torch.where(over, 0, each)
        over |= ends
    assert torch.equal(reward, total)
    assert torch.equal(terminated, over)
    assert 0 < int(over.sum()) < 40
    assert reward.max() == 1
    assert torch.equal(info["final_obs"], plain.observe())
    assert chunked.again(3).num_envs == 3


def test_worlds_and_environments_are_made_in_chunks() -> None:
    juggling = make_copies(EnvironmentSpec(id="polopt/Juggling-v0", chunk=2), 3)
    assert isinstance(juggling, ChunkedWorld)
    pendulum = make_copies(EnvironmentSpec(id="Pendulum-v1", chunk=2), 3)
    assert pendulum.action_space.shape == (3, 2)
    for one in (juggling, pendulum):
        one.close()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"id": "CartPole-v1", "chunk": 2},
            r"chunks of actions need a Box of actions and a length >= 1, found Discrete",
        ),
        (
            {"id": "CartPole-v1", "chunk": 2, "vectorization": "vector_entry_point"},
            "cannot cut the steps of copies that are stepped together",
        ),
        ({"id": "Nowhere-v0", "chunk": 2}, "cannot be made"),
    ],
)
def test_what_cannot_be_cut_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_copies(EnvironmentSpec(**spec), 2)


NDP = {
    "name": "ndp",
    "position": [0],
    "velocity": [2],
    "actions": 4,
    "output": "velocity",
    "integration": 20,
    "steps": 8,
}


def recipe(**changes: Any) -> Any:
    own = {"policy.head": "gaussian", "stages.rl.method": NDP, "stages.rl.but": {}, "stages.rl.rows": 2}
    own |= {"environment": {"id": "Pendulum-v1", "chunk": 4}}
    return test_transition_runs.recipe(**own | changes)


def test_a_run_of_movements(tmp_path: Path) -> None:
    train(recipe(), tmp_path / "run")
    found = lines(tmp_path / "run", "evaluations")
    assert all(line["length"]["estimate"] == 50 for line in found if "length" in line)
    assert lines(tmp_path / "run", "metrics")[-1]["rows"] == 2


def test_a_recipe_without_chunks_says_nothing_of_them() -> None:
    assert "chunk" not in test_control_runs.recipe().model_dump()["environment"]
    assert recipe().model_dump()["environment"]["chunk"] == 4


def test_movements_of_another_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="4 actions of 1 coordinates are vectors of 4 numbers, found 2; set environment"
    ):
        train(recipe(environment={"id": "Pendulum-v1", "chunk": 2}), tmp_path / "run")
