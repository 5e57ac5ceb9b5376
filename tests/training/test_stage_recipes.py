"""Recipes of several stages, and what is logged of second attempts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tiny_runs import DIGITS, Stop, StopAt, lines, outcome, recipe

from polopt.training import recipe as recipes
from polopt.training.launch import resume, train


def test_second_attempts_are_counted(tmp_path: Path) -> None:
    warmup = {"method": "sft", "steps": 15, "rows": 16, "optimiser": {"lr": 0.03}}
    settings = recipe(
        tasks={"kind": "second-chance", "ask": "again", "of": DIGITS},
        stages={
            "warmup": warmup,
            "second": {"method": {"name": "score", "stage": 1}, "steps": 2, "rows": 16, "group": 4, "micro_rows": 5},
            "both": {"method": {"name": "score", "stage": 2}, "steps": 2, "rows": 16, "group": 4},
        },
    )
    train(settings, tmp_path)
    records = lines(tmp_path, "metrics")
    steps = [r for r in records if r["stage"] != "warmup"]
    assert len(steps) == 4
    for record in steps:
        found = {k.removeprefix("attempts/"): v for k, v in record.items() if k.startswith("attempts/")}
        assert set(found) == {"first", "second", "delta", "corrected", "spoilt"}
        assert found["delta"] == pytest.approx(found["second"] - found["first"], abs=1e-12)
        assert found["delta"] == pytest.approx(found["corrected"] - found["spoilt"], abs=1e-12)
        assert all(math.isfinite(v) for v in record.values() if isinstance(v, float))
    assert not any(k.startswith("attempts/") for r in records if r["stage"] == "warmup" for k in r)


@pytest.mark.parametrize(
    ("name", "methods"), [("score", ["sft", "score", "score"]), ("etcon", ["sft", "etcon", "etcon"])]
)
def test_each_stage_of_a_method_has_an_end_of_its_own(name: str, methods: list[str]) -> None:
    found = recipes.load(name)
    assert [recipes.name_of_method(stage.method) for stage in found.stages.values()] == methods
    assert [stage.method["stage"] for stage in found.stages.values() if isinstance(stage.method, dict)] == [1, 2]
    assert all(stage.until is not None for stage in found.stages.values())


def test_the_edit_touches_its_layers_alone() -> None:
    found = recipes.load("etcon").stages
    assert found["edit"].train == "mlp"
    assert found["edit"].epochs > 1  # on the first pass over a batch it would be SFT


def test_a_fitted_reward_model_resumes_bit_for_bit(tmp_path: Path) -> None:
    stages = {
        "warmup": {"method": "sft", "steps": 6, "rows": 16, "optimiser": {"lr": 0.03}},
        "rl": {"method": {"name": "rlsqm", "model": True, "batches": 3}, "steps": 6, "rows": 16, "minibatches": 2},
    }
    tasks = {"kind": "unit-tests", "train": 100, "heldout": 20}
    settings = recipe(stages=stages, tasks=tasks, limit=40, checkpoint=2)
    train(settings, tmp_path / "through")
    # Stopped one batch after a checkpoint at 8, while the model is still fitted.
    with pytest.raises(Stop):
        train(settings, tmp_path / "stopped", watchers=(StopAt(8),))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "through") == outcome(tmp_path / "stopped")
