"""Suites of the benchmark: each can be trained, and equal budgets are compared as by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.curves import curve, equal_budgets
from benchmarks.suites import SUITES
from polopt.config import plain_data
from polopt.training import recipe as recipes
from polopt.training.run import Run


@pytest.mark.parametrize("name", list(SUITES))
def test_every_contestant_can_be_built(name: str) -> None:
    suite = SUITES[name]
    for method in (suite.yardstick, *suite.methods):
        recipe = recipes.load(suite.recipe, suite.changes, method=dict(method))
        assert recipe.stages[recipe.main_stage].method == plain_data(method)
        assert recipe.algorithms[recipe.main_stage]


def run(folder: Path, tokens: list[int], seconds: list[float], accuracy: list[float]) -> Run:
    """A run of two stages, with an evaluation before its last stage and after each of that stage's steps."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"stages": {"warmup": {}, "last": {}}}, sort_keys=False))
    made = Run(folder)
    made.log("metrics", {"step": 0, "stage": "warmup", "sampled": 999, "seconds/learn": 99.0})
    made.log("evaluations", {"step": 0, "stage": "warmup", "pass@1": {"estimate": 0.9}})
    for i, (n, s) in enumerate(zip(tokens, seconds, strict=True), 1):
        made.log(
            "metrics", {"step": i, "stage": "last", "sampled": n, "seconds/rollout": s / 2, "seconds/learn": s / 2}
        )
    for i, value in enumerate(accuracy, 1):
        made.log("evaluations", {"step": i, "stage": "last", "pass@1": {"estimate": value}})
    return made


def test_equal_budgets_by_hand(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", [10, 10], [1.0, 1.0], [0.2, 0.4, 0.6])
    dear = run(tmp_path / "dear", [40, 40], [1.0, 3.0], [0.2, 0.6, 1.0])
    assert curve(plain, "tokens") == ([0, 10, 20], [0.2, 0.4, 0.6])
    assert curve(dear, "seconds") == ([0, 1, 4], [0.2, 0.6, 1.0])
    found = equal_budgets([[plain, dear], [plain, dear]])
    # After 20 tokens the dear one stands half way from 0.2 to 0.6; after 2 seconds a third of the way from 0.6 to 1.
    assert found["tokens"]["budget"] == 20
    assert found["tokens"]["estimate"] == pytest.approx(0.4 - 0.6)
    assert found["seconds"]["budget"] == 2
    assert found["seconds"]["estimate"] == pytest.approx(0.6 + 0.4 / 3 - 0.6)


def test_who_samples_nothing_has_no_equal_budget_of_tokens(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", [10, 10], [1.0, 1.0], [0.2, 0.4, 0.6])
    shown = run(tmp_path / "shown", [0, 0], [1.0, 1.0], [0.2, 0.6, 1.0])
    assert list(equal_budgets([[plain, shown], [plain, shown]])) == ["seconds"]
