"""Runs of PROPS, whose batches hold those before and are played by other policies: resuming, logs, vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import test_control_runs
import test_transition_runs
from test_control_runs import left_by
from tiny_runs import Stop, StopAt, lines

from polopt.training import recipe as recipes
from polopt.training.launch import resume, train

METHOD = {"name": "props", "steps": 16, "every": 4, "behaviour_lr": 0.01, "max_kl": 0.5}


def recipe(**changes: Any) -> Any:
    small = {name: value for name, value in test_control_runs.SMALL.items() if "but" not in name}
    return recipes.load(
        "cartpole", small | {"stages.rl.method": METHOD, "stages.rl.but": {}, "logging.rollouts": 1} | changes
    )


def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Path) -> None:
    """And it logs each episode once, though batches are learned from twice."""
    train(recipe(), tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe(), tmp_path / "cut", watchers=(StopAt(2),))
    resume(tmp_path / "cut")
    assert left_by(tmp_path / "cut") == left_by(tmp_path / "whole")
    metrics = lines(tmp_path / "whole", "metrics")
    assert [line["rows"] for line in metrics] == [4, 8, 8, 8]
    assert all(line["behaviour/kl"] > 0 and line["behaviour/steps"] >= 1 for line in metrics)
    assert len(lines(tmp_path / "whole", "rollouts")) == sum(line["episodes"] for line in metrics)


def test_vectors_are_evened_out_too(tmp_path: Path) -> None:
    changes = {"stages.rl.method": METHOD, "stages.rl.rows": 2, "policy.normalise": True}
    found = train(test_transition_runs.recipe(**changes), tmp_path / "run").read("metrics")
    assert found[-1]["behaviour/kl"] > 0
