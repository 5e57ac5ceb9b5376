"""Evaluations of episodes that do not end, and of policies that look seldom."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.metrics import frequency_averaged_score
from polopt.policies.network import NetworkPolicy
from polopt.report.frequency_figure import frequency
from polopt.report.run import read_run
from polopt.training import recipe as recipes
from polopt.training.control import playing
from polopt.training.control.domain import ControlDomain
from polopt.training.control.evaluate import evaluate_control
from polopt.training.control.recipe import ControlRecipe
from polopt.training.launch import train


class Endless(gymnasium.Env[np.ndarray, np.ndarray]):
    """Steps without an end; the reward is the action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, **_: object) -> tuple[np.ndarray, dict[str, object]]:  # type: ignore[override]
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        return np.zeros(1, dtype=np.float32), float(action[0]), False, False, {}


def test_an_episode_without_an_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LONGEST", 500)
    environments = SyncVectorEnv([Endless] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = NetworkPolicy(observations=1, dimensions=1)
    with pytest.raises(RunError, match=r"did not end within 500 steps; give the environment a time limit"):
        playing.played(environments, policy, 3, seed=0, greedy=True)


def test_an_episode_that_is_as_long_as_that_ends() -> None:
    limited = [lambda: gymnasium.wrappers.TimeLimit(Endless(), 700)] * 2
    environments = SyncVectorEnv(limited, autoreset_mode=AutoresetMode.NEXT_STEP)
    score = playing.played(environments, NetworkPolicy(observations=1, dimensions=1), 3, seed=0, greedy=True)
    assert score.lengths == [700] * 3


FREQUENCY = {
    "threads": 1,
    "policy.hidden": [8],
    "stages.rl.steps": 2,
    "stages.rl.rows": 2,
    "stages.rl.minibatches": 1,
    "evaluation": {"problems": 3, "frequency": {"lengths": [1, 2, 5], "largest": 100.0, "shift": 1600.0}},
    "checkpoint": 2,
}


@pytest.mark.parametrize("lengths", [[1], [1, 1, 2], [4, 2]])
def test_lengths_rise(lengths: list[int]) -> None:
    changes = {**FREQUENCY, "evaluation": {"frequency": {"lengths": lengths, "largest": 1.0}}}
    with pytest.raises(ConfigError, match=r"evaluation.frequency.lengths = .*each larger than the one before"):
        recipes.load("pendulum", changes)


class Masked(gymnasium.Env[dict[str, np.ndarray], int]):
    """Two choices, of which the one of the step before may not be taken."""

    observation_space = gymnasium.spaces.Dict(
        {"observation": gymnasium.spaces.Box(-1, 1, (1,)), "action_mask": gymnasium.spaces.Box(0, 1, (2,), np.int8)}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_: object) -> tuple[dict[str, np.ndarray], dict[str, object]]:  # type: ignore[override]
        return {"observation": np.zeros(1, np.float32), "action_mask": np.ones(2, np.int8)}, {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, object]]:
        mask = np.array([action == 1, action == 0], np.int8)
        return {"observation": np.zeros(1, np.float32), "action_mask": mask}, 0.0, False, False, {}


def test_an_action_that_may_become_illegal_is_not_held() -> None:
    gymnasium.register("polopt-tests/Masked-v0", Masked, max_episode_steps=5)
    changes = {**FREQUENCY, "environment": {"id": "polopt-tests/Masked-v0"}}
    with pytest.raises(ConfigError, match=r"evaluation.frequency: it holds an action .* leave it out"):
        ControlDomain(ControlRecipe.require(recipes.load("cartpole", changes)))


def test_returns_at_lower_frequencies(tmp_path: Path) -> None:
    run = train(recipes.load("pendulum", FREQUENCY), tmp_path / "run")
    (evaluation,) = [found for found in read_run(run.folder).evaluations if "frequency" in found][-1:]
    found = evaluation["frequency"]
    means = {int(length): score["return"]["estimate"] for length, score in found["lengths"].items()}
    assert [*means] == [1, 2, 5]
    assert means[1] == pytest.approx(evaluation["return"]["estimate"])
    expected = frequency_averaged_score([1, 2, 5], [*means.values()], largest=100, shift=1600)
    assert found["average"] == pytest.approx(expected)
    # An action that is held, by hand: of the saved policy, in episodes of the same seeds.
    score = evaluate_control(run.folder, problems=2)
    assert score.frequency is not None
    policy, env = NetworkPolicy.load(run.folder / "policy"), gymnasium.make("Pendulum-v1")
    seen, _ = env.reset(seed=0)
    total = 0.0
    for t in range(200):
        if t % 5 == 0:
            action = policy.act(torch.tensor(seen)[None], torch.Generator(), greedy=True).action[0].numpy()
        seen, reward, *_ = env.step(np.clip(action, -2, 2))
        total += float(reward)
    assert score.frequency.scores[5].returns[0] == pytest.approx(total, rel=1e-4)
    figure = frequency(read_run(run.folder))
    assert figure is not None
    assert figure.data[0]["x"] == [1, 2, 5]
    assert f"{found['average']:.3f}" in figure.caption
