"""Choices and budgets in runs of a language policy: what they buy, and what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_runs import GUESS, lines, recipe

from polopt.training.launch import train


def records(tmp_path: Path, method: dict[str, Any], **stage: Any) -> list[dict[str, Any]]:
    """Metrics of four steps of 16 rows on 50 tasks, after a warm-up."""
    stages = {
        "warmup": {"method": "sft", "steps": 4, "rows": 16, "optimiser": {"lr": 0.03}},
        "rl": {"method": method, "steps": 4, "rows": 16, "group": 4, **stage},
    }
    train(recipe(stages=stages, tasks=GUESS, checkpoint=100), tmp_path)
    return [record for record in lines(tmp_path, "metrics") if record["stage"] == "rl"]


def test_rollouts_that_only_measure_are_counted_as_sampled(tmp_path: Path) -> None:
    found = records(tmp_path, {"name": "vas", "rollouts": 2, "every": 2, "kl": 0.0})
    assert [record["rows"] for record in found] == [16] * 4
    # Every second batch measures all 50 tasks twice: 100 answers beside its 16.
    assert min(found[0]["sampled"], found[2]["sampled"]) > 4 * max(found[1]["sampled"], found[3]["sampled"])


def test_the_first_round_of_a_measured_budget_is_counted_as_sampled(tmp_path: Path) -> None:
    found = records(tmp_path, {"name": "gvm", "first": 12, "block": "wte"})
    even = records(tmp_path / "even", {"name": "gvm", "first": 1, "block": "wte"})
    assert all(record["rows"] <= 16 for record in found)
    assert sum(r["sampled"] for r in found) > 2 * sum(r["sampled"] for r in even)


def test_knapsack_keeps_the_number_of_rows(tmp_path: Path) -> None:
    found = records(tmp_path, {"name": "knapsack-rl", "low": 2})
    assert [record["rows"] for record in found] == [16] * 4
