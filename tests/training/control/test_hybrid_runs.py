"""Runs of HNPG, which play and read a log for each batch: resuming, the lock opened, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_transition_runs
from test_control_runs import left_by
from tiny_runs import Stop, StopAt, lines

from polopt.claims.problems.lock_runs import log_of
from polopt.config import ConfigError
from polopt.training import recipe as recipes
from polopt.training.launch import resume, train

SHORT = {"actions": 3, "horizon": 4}
METHOD = {"name": "hnpg", "hidden": [16], "steps": 4, "radius": 0.03, "critic_lr": 0.01, "tau": 0.1, "gamma": 1.0}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("log") / "lock.npz"
    np.savez(path, **{name: column.numpy() for name, column in log_of(0, 0.3, 100, **SHORT).items()})
    return str(path)


def recipe(log: str | None, **changes: Any) -> Any:
    small = {"threads": 1, "policy.hidden": [16], "evaluation.problems": 64, "evaluation.quick": 8, "checkpoint": 2}
    small |= {"environment": {"id": "polopt/CombinationLock-v0", "settings": SHORT}, "transitions": log}
    small |= {"stages.rl.steps": 4, "stages.rl.rows": 8, "stages.rl.minibatches": 2, "stages.rl.epochs": 2}
    small |= {"stages.rl.method": METHOD, "stages.rl.but": {}}
    return recipes.load("cartpole", small | changes)


def test_a_resumed_run_is_the_undisturbed_one(log: str, tmp_path: Path) -> None:
    """And its batches are as large as they should be: 8 copies, 4 decisions of each, and as many of the log."""
    train(recipe(log), tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe(log), tmp_path / "cut", watchers=(StopAt(2),))
    resume(tmp_path / "cut")
    assert left_by(tmp_path / "cut") == left_by(tmp_path / "whole")
    for line in lines(tmp_path / "whole", "metrics"):
        assert line["rows"] == 64
        assert 0 < line["update/kl"] <= 0.03
        assert line["critic/loss"] > 0


def test_a_run_opens_a_short_lock(log: str, tmp_path: Path) -> None:
    rule = {"the code": {"part": "polopt.worlds.control:LockRule"}}
    changes = {"stages.rl.steps": 30, "evaluation.every": 30, "checkpoint": 30, "evaluation.rules": rule}
    found = train(recipe(log, **changes), tmp_path / "run").read("evaluations")
    assert found[0]["return"]["estimate"] < 0.3
    assert found[-1]["return"]["estimate"] > 0.8
    assert found[-1]["rules"]["the code"]["return"]["estimate"] == 1


def test_vectors_and_a_missing_log_are_refused(log: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"values of every choice, and needs Discrete actions, not Box"):
        train(test_transition_runs.recipe(**{"stages.rl.method": METHOD, "transitions": log}), tmp_path / "run")
    with pytest.raises(ConfigError, match="learns from logged transitions"):
        train(recipe(None), tmp_path / "run")
    changes = {"stages.rl.method": {"name": "trpo"}, "stages.rl.but": {"update.after_minibatches": True}}
    with pytest.raises(ConfigError, match="from which the policy's own critic does not learn"):
        train(recipe(log, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
