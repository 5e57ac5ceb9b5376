"""Networks that begin as those of another stage or run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_control_runs import left_by
from tiny_runs import Stop, StopAt

from polopt.config import ConfigError
from polopt.training import recipe as recipes
from polopt.training.control.recipe import ControlRecipe
from polopt.training.launch import resume, train

METHOD = {"name": "sac", "batch": 16, "steps": 5, "start": 20, "capacity": 60, "hidden": [8]}
# So small that float32 weights of an ordinary size do not change.
STILL = {"lr": 1e-30}
FRAGMENTS = {"sampling": {"part": "sampling.Fragments", "steps": 8}, "reward": {"part": "rewards.EnvironmentReward"}}


def recipe(second: dict[str, Any] | None = None, **changes: Any) -> ControlRecipe:
    stage = {"method": METHOD, "steps": 2, "rows": 2, "minibatches": 2}
    stages = {"first": stage} if second is None else {"first": stage, "second": stage | second}
    base = {"threads": 1, "policy.hidden": [8], "stages": stages, "evaluation.problems": 2, "evaluation.every": 0}
    return ControlRecipe.require(recipes.load("pendulum", base | {"checkpoint": 1} | changes))


def networks(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "networks.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe(), tmp_path_factory.mktemp("networks") / "run").folder


def test_a_stage_begins_with_the_networks_of_another(tmp_path: Path) -> None:
    made = recipe({"networks": {"stage": "first"}, "optimiser": STILL})
    folder = train(made, tmp_path / "whole").folder
    kept = load_file(folder / "networks-first.safetensors")
    assert {"critic.ensemble.layers.0.weight", "critic.target.ensemble.layers.0.weight", "temperature.log"} <= set(kept)
    ended = networks(folder)
    for name, value in kept.items():
        assert torch.equal(ended[name], value) == (".target." not in name), name  # averages move towards the critics
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(3),))
    again = resume(tmp_path / "run").folder
    assert left_by(again) == left_by(folder)
    assert all(torch.equal(value, ended[name]) for name, value in networks(again).items())


def test_a_run_begins_with_the_networks_of_another(finished: Path, tmp_path: Path) -> None:
    ended = networks(train(recipe(**{"stages.first.networks": {"run": str(finished)}, "seed": 5,
                                     "stages.first.optimiser": STILL}), tmp_path / "run").folder)  # fmt: skip
    before = networks(finished)
    assert all(torch.equal(value, ended[name]) for name, value in before.items() if ".target." not in name)
    anew = networks(train(recipe(seed=5, **{"stages.first.optimiser": STILL}), tmp_path / "anew").folder)
    assert not torch.equal(anew["critic.ensemble.layers.0.weight"], before["critic.ensemble.layers.0.weight"])


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"networks": {"stage": "third"}}, "stages.second.networks names stage 'third', which is not there"),
        ({"networks": {"stage": "second"}}, "which has not been run by then"),
        ({"networks": "initial"}, r"expected \{stage: NAME\} or \{run: FOLDER\}"),
        (
            {"networks": {"stage": "first"}, "method": METHOD | {"hidden": [9]}},
            r"critic.ensemble.layers.0.weight is \[2, 4, 9\] here and \[2, 4, 8\] there",
        ),
        (
            {"networks": {"stage": "first"}, "method": "ppo", "but": FRAGMENTS},
            r"none of this stage's networks, none, is there, found \['critic', 'temperature'\]",
        ),
    ],
)
def test_networks_that_do_not_fit_are_refused_at_the_door(
    second: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        train(recipe(second), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_without_networks_is_refused(tmp_path: Path) -> None:
    plain = recipe(**{"stages.first.method": "ppo", "stages.first.but": FRAGMENTS})
    other = train(plain, tmp_path / "plain").folder
    with pytest.raises(ConfigError, match="has no networks beside its policy"):
        train(recipe(**{"stages.first.networks": {"run": str(other)}}), tmp_path / "run")
