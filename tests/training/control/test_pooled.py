"""Copies that EnvPool steps: with a library of its interface, and with EnvPool itself where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_control_runs import Stop, StopAt, left_by, recipe

from polopt.config import ConfigError
from polopt.training.control.domain import ControlDomain
from polopt.training.launch import resume, train
from polopt.worlds.control.pooled import PooledCopies

COPIES = 3


class Pool:
    """EnvPool's interface over gymnasium's copies: seeds at the beginning, next-step autoreset, entries of any kind."""

    def __init__(self, task_id: str, num_envs: int, seed: int, num_threads: int, max_episode_steps: int = 9) -> None:
        assert num_threads == 1
        makers = [lambda: gymnasium.make(task_id, max_episode_steps=max_episode_steps) for _ in range(num_envs)]
        self.inner = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)
        self.observation_space, self.action_space = self.inner.single_observation_space, self.inner.single_action_space
        self.seed, self.closed = seed, False

    def reset(self) -> Any:
        observation, info = self.inner.reset(seed=self.seed)
        return observation.astype(np.float64), {**info, "players": {"env_id": np.zeros(1)}}

    def step(self, actions: np.ndarray) -> Any:
        assert actions.dtype == self.action_space.dtype
        observation, *others, info = self.inner.step(actions)
        return observation.astype(np.float64), *others, {**info, "speed": np.arange(len(actions)), "elapsed": 3}

    def close(self) -> None:
        self.inner.close()
        self.closed = True


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    made: list[Pool] = []

    def make(**settings: Any) -> Pool:
        assert settings.get("max_episode_steps", 1) > 0, "max_episode_steps must be > 0"
        made.append(Pool(**settings))
        return made[-1]

    stand_in: Any = ModuleType("envpool")
    stand_in.list_all_envs, stand_in.make_gymnasium = lambda: ["CartPole-v1", "Pendulum-v1"], make
    monkeypatch.setitem(sys.modules, "envpool", stand_in)
    return made


def test_seeds_make_the_pool_anew(library: list[Pool]) -> None:
    copies = PooledCopies("CartPole-v1", COPIES, {})
    first, _ = copies.reset(seed=5)
    again, _ = copies.reset(seed=[5, 8, 9])
    other, _ = copies.reset(seed=6)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert [pool.closed for pool in library] == [True, True, True, False]
    copies.reset()
    assert len(library) == 4
    _, _, _, _, info = copies.step(np.array([0, 1, 0]))
    assert {*info} == {"speed"}  # a row for each copy
    copies.close()
    assert library[-1].closed
    assert copies.single_observation_space.shape == (4,)
    assert copies.observation_space.shape == (COPIES, 4)


@pytest.mark.usefixtures("library")
def test_a_run_by_pooled_copies_is_that_of_gymnasiums(tmp_path: Path) -> None:
    """And goes on bit for bit where it was stopped."""
    found = {}
    for mode in ("envpool", "sync"):
        world = {"id": "CartPole-v1", "vectorization": mode, "settings": {"max_episode_steps": 9}}
        found[mode] = left_by(train(recipe(environment=world), tmp_path / mode).folder)
    assert found["envpool"]["policy"] == found["sync"]["policy"]
    with pytest.raises(Stop):
        train(recipe(environment={**world, "vectorization": "envpool"}), tmp_path / "stopped", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "stopped").folder) == found["envpool"]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        ({"id": "Pendulum-v2"}, "EnvPool has no environment of this name.*Pendulum-v1.*set vectorization to auto"),
        ({"id": "CartPole-v1", "settings": {"max_episode_steps": 0}}, "max_episode_steps must be > 0"),
        ({"id": "CartPole-v1", "settings": {"height": 2}}, "height"),
        ({"id": "CartPole-v1", "chunk": 2}, "set environment.vectorization to sync or async"),
    ],
)
def test_what_cannot_be_made_is_refused(world: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        ControlDomain(recipe(environment={**world, "vectorization": "envpool"}))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match=r"needs EnvPool: pip install 'polopt\[envpool\]'"):
        ControlDomain(recipe(environment={"id": "CartPole-v1", "vectorization": "envpool"}))


def test_envpool_itself(tmp_path: Path) -> None:
    """Episodes end and begin as the mode says, seeds reproduce them, and CartPole's steps are gymnasium's."""
    pytest.importorskip("envpool")
    torch.set_num_threads(1)
    copies = PooledCopies("CartPole-v1", COPIES, {"max_episode_steps": 30})
    plain: Any = gymnasium.make("CartPole-v1", max_episode_steps=30)
    plain.reset(seed=0)
    seen, _ = copies.reset(seed=7)
    plain.unwrapped.state = seen[0].astype(float)
    generator, over, ended = np.random.default_rng(0), False, 0
    for _ in range(100):
        action = generator.integers(2, size=COPIES)
        seen, reward, terminated, truncated, _ = copies.step(action)
        if over:  # this step has begun the next episode
            assert (reward[0], terminated[0], truncated[0]) == (0, False, False)
            plain.reset(seed=0)
            plain.unwrapped.state = seen[0].astype(float)
            ended += 1
        else:
            expected = plain.step(int(action[0]))
            np.testing.assert_allclose(seen[0], expected[0], atol=1e-5)
            assert (float(reward[0]), bool(terminated[0]), bool(truncated[0])) == tuple(
                map(float, expected[1:2])
            ) + expected[2:4]
        over = bool(terminated[0] or truncated[0])
    assert ended > 2
    world = {"id": "CartPole-v1", "vectorization": "envpool"}
    whole = left_by(train(recipe(environment=world), tmp_path / "whole").folder)
    with pytest.raises(Stop):
        train(recipe(environment=world), tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == whole
