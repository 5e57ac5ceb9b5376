"""Runs of policies with a memory, and the refusals of what cannot train one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_control_runs import left_by
from tiny_runs import Stop, StopAt

from polopt.config import ConfigError
from polopt.policies.network import NetworkPolicy
from polopt.training import recipe as recipes
from polopt.training.launch import resume, train

GIVEN = {"part": "sampling.Memory", "units": 4}
TRUNK = {"part": "networks.Recurrent", "hidden": [5]}
OF_FRAGMENTS = {
    "sampling": {"part": "sampling.Fragments", "steps": 8, "policy_input": GIVEN},
    "reward": {"part": "rewards.EnvironmentReward"},
    "credit.credit.cut": "bootstrap",
    "trunk": TRUNK,
}


def recipe(**changes: Any) -> Any:
    ppo = {"name": "ppo", "kl": 0.0, "value_clip": None}
    stage = {"rows": 4, "steps": 4, "minibatches": 2, "epochs": 2, "method": ppo, "but": OF_FRAGMENTS}
    settings = {
        "threads": 1,
        "environment": {"id": "polopt/HiddenDynamics-v0"},
        "policy": {"head": "gaussian", "normalise": True},
        "evaluation.problems": 2,
        "evaluation.quick": 1,
        "checkpoint": 2,
        "stages": {"rl": stage},
    }
    return recipes.load("pendulum", settings | changes)


def test_it_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    whole = train(recipe(), tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe(), tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == left_by(whole.folder)
    assert NetworkPolicy.load(whole.folder / "policy").inputs == {"memory": 8}


@pytest.mark.parametrize(
    ("environment", "head"), [("CartPole-v1", None), ("Pendulum-v1", "beta"), ("MountainCarContinuous-v0", "gaussian")]
)
def test_other_environments_and_heads(environment: str, head: str | None, tmp_path: Path) -> None:
    changes = {"environment": {"id": environment}, "policy": {"head": head}, "stages.rl.steps": 2}
    run = train(recipe(**changes), tmp_path / "run")
    assert len([*run.read("metrics")]) == 2


def test_the_natural_gradient_reads_it_too(tmp_path: Path) -> None:
    but = {"trunk": TRUNK, "sampling.policy_input": GIVEN, "sampling.steps": 8}
    run = train(recipe(**{"stages.rl.method": {"name": "trpo"}, "stages.rl.but": but}), tmp_path / "run")
    assert all(0 <= row["update/kl"] <= 0.02 for row in run.read("metrics"))


def test_methods_of_single_decisions_are_refused(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"policy": {"head": "deterministic"}, "environment": {"id": "Pendulum-v1"}}
    changes |= {"stages.rl.method": {"name": "td3"}}
    changes |= {"stages.rl.but": {"trunk": TRUNK, "sampling.policy_input": GIVEN}}
    with pytest.raises(ConfigError, match=r"whole fragments, and sampling\.TransitionReplay has single"):
        train(recipe(**changes), tmp_path / "run")
    with pytest.raises(ConfigError, match="compiled = true is for single decisions"):
        train(recipe(compiled=True), tmp_path / "run")
