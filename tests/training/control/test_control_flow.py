"""Control policies: starts, rounds and named policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_control_runs import SMALL, left_by
from tiny_runs import Stop, StopAt

from polopt.config import ConfigError
from polopt.objectives import ReferenceKL
from polopt.training import recipe as recipes
from polopt.training.control.recipe import ControlRecipe
from polopt.training.launch import resume, train

GUIDED = {"objective.regularise": [ReferenceKL(anchor="guide")]}


def recipe(rounds: int = 1, **stages: Any) -> ControlRecipe:
    made = ControlRecipe.require(recipes.load("cartpole", SMALL))
    data = made.model_dump()
    stage = data["stages"].pop("rl") | {"steps": 2}
    data["stages"] = {name: stage | changes for name, changes in stages.items()}
    return ControlRecipe.require(recipes.recipe_of(data | {"rounds": rounds, "checkpoint": 1}))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "policy" / "model.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe(rl={}), tmp_path_factory.mktemp("finished") / "run").folder


def test_a_run_that_learns_nothing_ends_with_the_soup_it_started_with(finished: Path, tmp_path: Path) -> None:
    frozen = {"train": "log_std|actor.0.bias", "optimiser": {"lr": 1e-30}}
    soup = {"average": ["initial", {"run": str(finished)}, {"stage": "a"}], "weights": [0.5, 0.25, 0.25]}
    run = train(recipe(a={}, b=frozen | {"start": soup}), tmp_path / "run").folder
    found, initial, end = weights(run), load_file(run / "initial.safetensors"), load_file(run / "end-a.safetensors")
    for name, value in weights(finished).items():
        expected = 0.5 * initial[name].double() + 0.25 * value.double() + 0.25 * end[name].double()
        torch.testing.assert_close(found[name].double(), expected, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_control_run_with_rounds_goes_on(at: int, finished: Path, tmp_path: Path) -> None:
    guided = {"policies": {"guide": {"run": str(finished)}}, "start": {"stage": "a"}}
    but = recipe(a={}).model_dump()["stages"]["a"]["but"]
    made = recipe(2, a={"steps": 1}, b=guided | {"but": but | GUIDED})
    whole = left_by(train(made, tmp_path / "whole").folder)
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(at),))
    assert left_by(resume(tmp_path / "run").folder) == whole


def test_what_a_control_policy_cannot_be_is_refused(finished: Path, tmp_path: Path) -> None:
    but = recipe(a={}).model_dump()["stages"]["a"]["but"] | GUIDED
    with pytest.raises(ConfigError, match="the stage names no policy guide"):
        train(recipe(a={"but": but}), tmp_path / "run")
    with pytest.raises(ConfigError, match="a control policy is no model of that format"):
        train(recipe(a={"but": but, "policies": {"guide": {"model": str(finished / "policy")}}}), tmp_path / "run")
    other = recipe(a={"start": {"run": str(finished)}}).model_copy(
        update={"policy": recipe(a={}).policy.model_copy(update={"hidden": (4,)})}
    )
    with pytest.raises(ConfigError, match=r"another architecture, hidden is \[8\] there"):
        train(other, tmp_path / "run")
