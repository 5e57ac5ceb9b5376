"""Runs of a policy by history in dynamics that only a simulator tells, and the refusals of what lacks either."""

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

NAMED = {"name": "hib", "length": 3, "latent": 2, "features": 4, "encoder": [6], "hidden": [5], "steps": 8}


def recipe(environment: str = "polopt/HiddenDynamics-v0", **changes: Any) -> Any:
    stage = {"rows": 4, "steps": 4, "minibatches": 2, "epochs": 2, "method": NAMED}
    settings = {
        "threads": 1,
        "environment": {"id": environment},
        "policy": {"head": "gaussian"},
        "evaluation.problems": 2,
        "evaluation.quick": 1,
        "checkpoint": 2,
        "stages": {"rl": stage},
    }
    return recipes.load("pendulum", settings | changes)


def test_it_is_resumed_bit_for_bit_and_its_terms_are_in_the_log(tmp_path: Path) -> None:
    whole = train(recipe(), tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe(), tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == left_by(whole.folder)
    rows = whole.read("metrics")
    assert all(0 <= row["PrivilegedDistance"] <= 4 for row in rows)
    assert all(row["LatentKL"] >= 0 for row in rows)
    assert NetworkPolicy.load(whole.folder / "policy").space.privileged == 2


def test_an_environment_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="have no entry 'privileged'; make them a Dict of observation and privileged"):
        train(recipe("Pendulum-v1"), tmp_path / "run")


def test_a_policy_without_a_latent_vector_is_refused(tmp_path: Path) -> None:
    changes = {"stages.rl.but": {"trunk": None}}
    with pytest.raises(ConfigError, match=r"but: \{trunk: \{part: networks\.HistoryEncoder"):
        train(recipe(**changes), tmp_path / "run")


def test_the_optimum_needs_to_be_shown_what_is_hidden(tmp_path: Path) -> None:
    rules = {"optimum": {"part": "polopt.worlds.control:HiddenDynamicsOptimum"}}
    with pytest.raises(ConfigError, match=r"evaluation\.rules\.optimum: .* set environment\.settings\.shown to true"):
        train(recipe(**{"evaluation.rules": rules}), tmp_path / "run")


def test_any_method_of_fragments_reads_a_history(tmp_path: Path) -> None:
    given = {"part": "sampling.EpisodeHistory", "length": 2}
    ppo = {"name": "ppo", "kl": 0.0, "value_clip": None}
    but = {
        "sampling": {"part": "sampling.Fragments", "steps": 8, "policy_input": given},
        "reward": {"part": "rewards.EnvironmentReward"},
        "credit.credit.cut": "bootstrap",
    }
    for environment in ("polopt/HiddenDynamics-v0", "Pendulum-v1"):
        made = recipe(environment, **{"stages.rl.method": ppo, "stages.rl.but": but})
        run = train(made, tmp_path / environment.replace("/", "-"))
        assert NetworkPolicy.load(run.folder / "policy").inputs["history"] % 2 == 0
