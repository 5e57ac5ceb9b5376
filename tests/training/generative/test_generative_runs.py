"""Whole runs of generative policies: what is learned, resuming, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import Stop, StopAt, lines

from polopt.config import ConfigError
from polopt.policies.flow import FlowPolicy
from polopt.training import recipe as recipes
from polopt.training.generative.domain import GenerativeDomain
from polopt.training.generative.recipe import GenerativeRecipe
from polopt.training.launch import resume, train
from polopt.training.recipe import recipe_of

METHODS: dict[str, dict[str, Any]] = {
    "uniworld-v2": {"name": "uniworld-v2", "group": 4},
    "diffusion-nft": {"name": "diffusion-nft", "group": 4},
    "seppo": {"name": "seppo", "beta": 20.0, "every": 2},
    "diffusion-dpo": {"name": "diffusion-dpo", "beta": 20.0},
    "dpo": {"name": "dpo"},
    "kto": {"name": "kto"},
    "gspo": {"name": "gspo"},
}


def recipe(method: Any = "gspo", **changes: Any) -> GenerativeRecipe:
    stage = {"method": method, "steps": 5, "rows": 8, "group": 4, "optimiser": {"lr": 0.01}}
    if not (isinstance(method, dict) and "group" in method) and method not in ("gspo",):
        stage.pop("group")
    plain = {
        "kind": "generative",
        "threads": 1,
        "points": {"name": "modes", "settings": {"size": 40}},
        "policy": {"hidden": [8], "steps": 3, "draws": 2},
        "stages": {"base": {"method": "sft", "steps": 2, "rows": 8}, "last": stage},
        "evaluation": {"problems": 6, "quick": 4, "every": 2},
        "checkpoint": 2,
    }
    return GenerativeRecipe.require(recipe_of(plain | changes))


def left_by(folder: Path) -> dict[str, Any]:
    last = max(p for p in (folder / "checkpoints").iterdir() if p.name.isdigit())
    files = {"policy": folder / "policy" / "model.safetensors", "state": last / "state.safetensors"}
    logs = {name: lines(folder, name) for name in ("metrics", "evaluations", "rollouts")}
    return {**{name: path.read_bytes() for name, path in files.items()}, **logs}


@pytest.mark.parametrize("slug", METHODS)
def test_a_method_learns_and_resumes_exactly(slug: str, tmp_path: Path) -> None:
    made = recipe(METHODS[slug])
    train(made, tmp_path / "whole")
    start = FlowPolicy(dimensions=2, hidden=[8], steps=3, seed=made.seed_of("policy"))
    trained = FlowPolicy.load(tmp_path / "whole" / "policy")
    assert trained.weights().isfinite().all()
    assert not torch.equal(start.weights(), trained.weights())
    with pytest.raises(Stop):
        train(made, tmp_path / "parted", watchers=(StopAt(5),))
    resume(tmp_path / "parted")
    assert left_by(tmp_path / "parted") == left_by(tmp_path / "whole")


def test_more_of_the_preferred_mode_is_made(tmp_path: Path) -> None:
    base = {"method": "sft", "steps": 150, "rows": 64, "optimiser": {"lr": 0.005}}
    last = {"method": "gspo", "steps": 40, "rows": 64, "optimiser": {"lr": 0.003}}
    policy = {"hidden": [32], "steps": 6, "draws": 4}
    train(recipe(stages={"base": base, "last": last}, policy=policy, evaluation={"problems": 500}), tmp_path / "run")
    before, after = (line["reward"] for line in lines(tmp_path / "run", "evaluations"))
    assert after["low"] > before["high"] + 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "ppo"}, "needs a critic, which a flow policy has not"),
        ({"method": "sdpo"}, "stages.last"),
        ({"points": {"name": "mode"}}, "points: there is no task of points 'mode'"),
        ({"points": {"name": "modes", "settings": {"cont": 1}}}, "has no setting 'cont'"),
        ({"policy": {"steps": 0}}, "policy.steps"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GenerativeDomain(recipe(changes.pop("method", {"name": "dpo"}), **changes))


def test_the_recipe_of_digits_is_valid() -> None:
    found = GenerativeRecipe.require(recipes.load("digits"))
    domain = GenerativeDomain(found)
    assert domain.policy.dimensions == 64
    assert domain.policy.contexts == 10
