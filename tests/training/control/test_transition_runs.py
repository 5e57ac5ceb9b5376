"""Whole runs that learn from stored and logged transitions: exact resume, logs of other runs and files, refusals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas
import pytest
import torch
from gymnasium.spaces import Box
from test_control_runs import left_by
from tiny_runs import Stop, StopAt, lines

from polopt.config import ConfigError
from polopt.training import recipe as recipes
from polopt.training.control.logged import load_transitions
from polopt.training.control.recipe import ControlRecipe
from polopt.training.control.transition_store import stored
from polopt.training.launch import resume, train

SMALL = {
    "threads": 1,
    "policy.hidden": [8],
    "stages.rl.steps": 4,
    "stages.rl.rows": 2,
    "stages.rl.minibatches": 2,
    "stages.rl.method": {"name": "sac", "batch": 32, "steps": 5, "start": 20, "capacity": 30, "hidden": [8]},
    "evaluation.problems": 3,
    "evaluation.quick": 2,
    "evaluation.every": 2,
    "checkpoint": 2,
}
VALUES = {"name": "dqn", "double": True, "n_steps": 3, "batch": 32, "steps": 5, "start": 20, "capacity": 30}
VALUES |= {"target_every": 3, "explore": 3}
OFFLINE = {"name": "iql", "batch": 32, "hidden": [8]}


def recipe(**changes: Any) -> ControlRecipe:
    return ControlRecipe.require(recipes.load("pendulum", SMALL | changes))


class Unbounded(gymnasium.Env[Any, Any]):
    """Actions without bounds."""

    observation_space = Box(-1.0, 1.0, (2,))
    action_space = Box(-np.inf, np.inf, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, True, False, {}


gymnasium.register("test-unbounded-v0", Unbounded)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe(), tmp_path_factory.mktemp("replay") / "run").folder


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("method", ["sac", "td3", "dqn"])
def test_a_run_that_is_stopped_ends_as_if_it_had_not_been(method: str, at: int, tmp_path: Path) -> None:
    """Its transitions too, of which the store has room for fewer than the run plays."""
    changes: dict[str, Any] = {"stages.rl.method": SMALL["stages.rl.method"] | {"name": method}}
    if method == "dqn":
        changes = {"stages.rl.method": VALUES, "environment.id": "CartPole-v1"}
    heads = {"td3": "deterministic", "sac": "squashed_gaussian", "dqn": "action_values"}
    made = recipe(**changes, **{"policy.head": heads[method]})
    whole = train(made, tmp_path / "whole").folder
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(at),))
    again = resume(tmp_path / "run").folder
    assert left_by(again) == left_by(whole)
    kept = [stored(folder / "transitions-rl") for folder in (whole, again)]
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    metrics = {"critic/loss", "critic/value"} if method != "dqn" else {"loss", "value", "epsilon"}
    assert metrics <= lines(whole, "metrics")[-1].keys()


def test_what_is_stored_is_what_was_played(finished: Path) -> None:
    kept = stored(finished / "transitions-rl")
    count = len(kept["reward"])
    assert count >= 20 + 4 * 5 * 2
    assert (kept["action"].abs() <= 2).all()  # Pendulum's torque
    # Its reward is that of the angle and speed before, and the torque.
    angle = torch.atan2(kept["observation"][:, 1], kept["observation"][:, 0])
    expected = -(angle.square() + 0.1 * kept["observation"][:, 2].square() + 0.001 * kept["action"][:, 0].square())
    torch.testing.assert_close(kept["reward"], expected, rtol=1e-3, atol=1e-3)
    assert not kept["terminated"].any()


@pytest.mark.parametrize("method", ["iql", "awac", "td3-bc"])
def test_a_run_learns_from_the_log_of_another(method: str, finished: Path, tmp_path: Path) -> None:
    head = "deterministic" if method == "td3-bc" else "squashed_gaussian"
    changes = {"stages.rl.method": OFFLINE | {"name": method}, "policy.head": head, "transitions": str(finished)}
    run = train(recipe(**changes), tmp_path / "run").folder
    last = lines(run, "metrics")[-1]
    assert last["rows"] == 32
    assert last["episodes"] == 0  # nothing was played
    assert not (run / "transitions-rl").exists()


def test_files_of_every_kind_are_read_alike(finished: Path, tmp_path: Path) -> None:
    kept = {name: column.numpy() for name, column in stored(finished / "transitions-rl").items()}
    np.savez(tmp_path / "log.npz", **kept)
    flat = {name: column for name, column in kept.items() if column.ndim == 1}
    wide = {f"{n}_{i}": c[:, i] for n, c in kept.items() if c.ndim == 2 for i in range(c.shape[1])}
    pandas.DataFrame(flat | wide).to_csv(tmp_path / "log.csv", index=False)
    for path in (finished, tmp_path / "log.npz", tmp_path / "log.csv"):
        found = load_transitions(path, "transitions", observations=3, action=(1,))
        for name, column in kept.items():
            if name == "following":  # the store's order is that of the copies of the environment
                continue
            assert found[name].dtype == (torch.bool if column.dtype == bool else torch.float32)
            np.testing.assert_allclose(found[name].numpy(), column, rtol=1e-6)


def log(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"observation": np.zeros((4, 3)), "next_observation": np.zeros((4, 3))}
    return plain | {"action": np.zeros((4, 1)), "reward": np.zeros(4), "terminated": np.zeros(4, bool)} | changes


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (log(reward=None), "has no reward, and has action, next_observation"),
        (log(observation=np.zeros((4, 2))), r"observation of .*log.npz must be of shape \[4, 3\], .* found \[4, 2\]"),
        (log(reward=np.array([0, 1, np.nan, 2])), "reward of row 2 of .* is nan, which is no finite number"),
        (log(terminated=np.array([0, 1, 0.5, 1])), "terminated of row 2 of .* is 0.5, which is no truth value"),
        ({name: value[:0] for name, value in log().items()}, "holds no transitions"),
    ],
)
def test_a_bad_log_is_refused_by_row_and_column(columns: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **{name: value for name, value in columns.items() if value is not None})
    with pytest.raises(ConfigError, match=sentence):
        load_transitions(tmp_path / "log.npz", "transitions", observations=3, action=(1,))
    with pytest.raises(ConfigError, match="there is no file or folder"):
        load_transitions(tmp_path / "other.npz", "transitions", observations=3, action=(1,))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stages.rl.method": OFFLINE}, "it learns from logged transitions; set transitions to a file of them"),
        (
            {"policy.head": "deterministic"},
            "its policy needs the density of actions, and policy.head",
        ),
        (
            {"environment.id": "CartPole-v1", "policy.head": None},
            "climbs a critic's value through its action",
        ),
        (
            {"environment.id": "test-unbounded-v0", "policy.head": "gaussian"},
            "uniform and noisy actions need bounds",
        ),
        ({"stages.rl.method": VALUES}, "its policy's outputs are the values of choices; set policy.head to action_val"),
        (
            {"stages.rl.method": VALUES, "environment.id": "CartPole-v1", "policy.head": None},
            "set policy.head to action_values, which needs Discrete actions, and the environment's are Discrete",
        ),
        (
            {
                "stages.rl.method": VALUES,
                "stages.rl.but": {"sampling.epsilon": 0.0, "sampling.noise": 0.1},
                "environment.id": "CartPole-v1",
                "policy.head": "action_values",
            },
            "noise = 0.1 is Gaussian noise on vectors, .* set the method's noise to 0, and sampling.epsilon",
        ),
        ({"stages.rl.but": {"sampling.epsilon": 0.1}}, "epsilon is the chance of a random choice, .* Box"),
        (
            {
                "stages.rl.method": {"name": "ppo"},
                "stages.rl.but": {
                    "sampling": {"part": "sampling.Fragments", "steps": 4},
                    "reward": {"part": "rewards.EnvironmentReward"},
                },
                "environment.id": "CartPole-v1",
                "policy.head": "action_values",
            },
            "policy.head = 'action_values' has none; set it to categorical",
        ),
        ({"stages.rl.micro_rows": 8}, "networks beside the policy learn from whole minibatches"),
        ({"stages.rl.minibatches": 33}, r"stages.rl.minibatches = 33, and the batch has 32 groups"),
    ],
)
def test_what_cannot_be_is_refused_at_the_door(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        train(recipe(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_language_recipe_refuses_networks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs transitions, which language training cannot provide"):
        train(recipes.load("smoke", {"stages.rl.method": "sac"}), tmp_path / "run")


def test_transitions_that_are_gone_are_said(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(recipe(), tmp_path / "run", watchers=(StopAt(3),))
    shutil.rmtree(tmp_path / "run" / "transitions-rl")
    with pytest.raises(Exception, match="which are not there; start the run anew"):
        resume(tmp_path / "run")
