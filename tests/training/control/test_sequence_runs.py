"""Runs whose policy plays sequences of actions."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_control_runs import left_by
from tiny_runs import Stop, StopAt

from polopt.config import ConfigError
from polopt.training import recipe as recipes
from polopt.training.launch import resume, train
from polopt.training.recipe import Recipe

METHOD = {"name": "srl-sequence", "sequence": 3, "batch": 16, "start": 8, "hidden": [8], "model_hidden": [8]}
SMALL = {
    "threads": 1,
    "policy.hidden": [8],
    "stages.rl.steps": 6,
    "stages.rl.rows": 2,
    "stages.rl.minibatches": 2,
    "evaluation.problems": 2,
    "evaluation.quick": 1,
    "checkpoint": 2,
}


def recipe(**changes: object) -> Recipe:
    return recipes.load("pendulum", SMALL | {k.replace("__", "."): v for k, v in changes.items()}, method=METHOD)


@pytest.mark.parametrize("at", [1, 3])
def test_a_run_of_sequences_goes_on(at: int, tmp_path: Path) -> None:
    run = train(recipe(), tmp_path / "whole")
    last = run.read("metrics")[-1]
    assert {"critic/loss", "temperature/value", "model/loss"} <= last.keys()
    whole = left_by(run.folder)
    with pytest.raises(Stop):
        train(recipe(), tmp_path / "run", watchers=(StopAt(at),))
    assert left_by(resume(tmp_path / "run").folder) == whole


def test_another_trunk_and_another_head_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs the density of actions"):
        train(recipe(policy__head="deterministic"), tmp_path / "a")
    without = {"sampling.policy_input": None}
    with pytest.raises(ConfigError, match=r"networks\.ActionSequence: it reads the action before.*LastAction"):
        train(recipe(stages__rl__but=without), tmp_path / "b")
