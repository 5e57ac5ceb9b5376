"""Runs whose policy chooses its balance by state: on a log, then on it and on what is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_control_runs import left_by
from tiny_runs import Stop, StopAt

from polopt.networks import BalanceActor
from polopt.policies.network import NetworkPolicy
from polopt.training import recipe as recipes
from polopt.training.launch import resume, train

NAMED = {"name": "famo2o", "batch": 16, "hidden": [8], "low": 0.5}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path, draw = tmp_path_factory.mktemp("log") / "pendulum.npz", np.random.default_rng(0)
    seen = draw.normal(size=(41, 3)).astype(np.float32)
    np.savez(
        path,
        observation=seen[:-1],
        next_observation=seen[1:],
        action=draw.uniform(-2, 2, size=(40, 1)).astype(np.float32),
        reward=draw.normal(size=40).astype(np.float32),
        terminated=np.zeros(40, dtype=bool),
        truncated=np.arange(40) % 10 == 9,
    )
    return str(path)


def recipe(log: str) -> Any:
    stage = {"rows": 2, "steps": 4, "minibatches": 2}
    online = {"but": {"sampling.start": 8}}
    settings = {
        "threads": 1,
        "transitions": log,
        "policy.head": "gaussian",
        "evaluation.problems": 2,
        "evaluation.quick": 1,
        "checkpoint": 2,
        "stages": {
            "offline": {**stage, "method": NAMED},
            "online": {**stage, **online, "method": {**NAMED, "adaptive": True, "logged": 0.5}},
        },
    }
    return recipes.load("pendulum", settings)


def test_it_goes_on_from_a_log_to_what_it_plays(log: str, tmp_path: Path) -> None:
    run = train(recipe(log), tmp_path / "whole")
    rows = run.read("metrics")
    for row in rows:
        assert 0.5 <= row["balance"] <= 5.0
    assert {"temperature/value", "temperature/entropy", "critic/loss"} <= rows[-1].keys()
    whole = left_by(run.folder)
    with pytest.raises(Stop):
        train(recipe(log), tmp_path / "run", watchers=(StopAt(6),))
    assert left_by(resume(tmp_path / "run").folder) == whole
    policy = NetworkPolicy.load(run.folder / "policy")
    assert isinstance(policy.actor, BalanceActor)
    assert 0.5 <= float(policy.actor.mode(torch.zeros(1, 3)).detach()) <= 5.0
