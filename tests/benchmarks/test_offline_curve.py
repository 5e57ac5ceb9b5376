"""The curve of offline methods: their recipes, and which runs are whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.offline_curve import METHODS, RECORDED, STEPS, finished, recipe_of
from polopt.training.control.recipe import ControlRecipe


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_a_recipe(method: str, tmp_path: Path) -> None:
    """It builds, with networks of the policy's widths where it has some."""
    recipe = ControlRecipe.require(recipe_of(method, tmp_path, seed=1))
    algorithm = recipe.stages["rl"].algorithm("stages.rl")
    widths = {tuple(spec.network.hidden) for spec in algorithm.networks if hasattr(spec.network, "hidden")}
    assert widths <= {(64, 64)}
    assert bool(widths) == (method != "bc")


def test_a_run_that_was_stopped_is_not_whole(tmp_path: Path) -> None:
    assert not finished(tmp_path)
    (tmp_path / "recipe.yaml").write_text("")
    for last, whole in ((min(RECORDED, STEPS) - 1, False), (RECORDED, True)):
        (tmp_path / "evaluations.jsonl").write_text(json.dumps({"step": 0}) + "\n" + json.dumps({"step": last}) + "\n")
        assert finished(tmp_path) == whole
