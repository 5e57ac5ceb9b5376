"""The recipes of methods that have stages: what each stage is, how it ends, and that they run one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_runs import lines

import polopt as po
from polopt.part_diff import diff
from polopt.training import recipe as recipes
from polopt.training.launch import train

STAGED = {"adacot": ["warmup", "mathematics", "general"], "conciser": ["warmup", "walk", "run"]}


@pytest.mark.parametrize("name", STAGED)
def test_every_stage_says_when_it_is_done(name: str) -> None:
    recipe = recipes.load(name)
    assert list(recipe.stages) == STAGED[name]
    assert all(stage.until is not None for stage in recipe.stages.values())


def test_stages_are_those_of_the_methods() -> None:
    adacot = [stage.algorithm(name) for name, stage in recipes.load("adacot").stages.items()]
    assert diff(adacot[0], po.method("adacot", stage=1)) == []
    assert diff(adacot[1], po.method("adacot", stage=2, deciding=3)) == []
    marks = {"reward.terms.1.thought", "reward.terms.1.need", "reward.terms.1.malformed"}
    assert {path.removesuffix(".pattern") for path, *_ in diff(adacot[2], po.method("adacot"))} <= marks
    _, walk, run = (stage.algorithm(name) for name, stage in recipes.load("conciser").stages.items())
    for number, found in ((1, walk), (2, run)):
        assert diff(found, po.method("conciser", stage=number, group=8)) == []


@pytest.mark.parametrize("name", STAGED)
def test_all_stages_run(name: str, tmp_path: Path) -> None:
    short = {f"stages.{stage}.{key}": value for stage in STAGED[name] for key, value in (("steps", 2), ("rows", 16))}
    small = {"policy.config.n_layer": 1, "tasks.train": 200, "tasks.heldout": 10, "evaluation.problems": 10}
    train(name, tmp_path / "run", **short, **small, threads=1)
    records = lines(tmp_path / "run", "metrics")
    assert [r["stage"] for r in records] == [stage for stage in STAGED[name] for _ in range(2)]
