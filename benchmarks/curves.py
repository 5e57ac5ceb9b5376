"""What two runs had reached when they had spent the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from polopt.metrics.compare import paired_difference
from polopt.training.run import Run

PARTS = ("rollout", "reward", "learn")
# Name of a budget -> how it is computed from a step's record. Turns are counted in the rows that were kept; tokens tell
# how many more were sampled.
SPENT = {
    "tokens": lambda record: record.get("sampled", 0),
    "seconds": lambda record: sum(record.get(f"seconds/{part}", 0.0) for part in PARTS),
    "turns": lambda record: (
        record["rows"] * record.get("turns/mean", 1.0) * record.get("sampled", 0) / max(1, record.get("tokens", 1))
    ),
}


def main_stage(run: Run) -> str:
    """The run's last stage."""
    return list(yaml.safe_load(run.recipe.read_text(encoding="utf-8"))["stages"])[-1]


def curve(run: Run, what: str) -> tuple[list[float], list[float]]:
    """Spent since the last stage began, and held-out accuracy, at each of its evaluations."""
    stage = main_stage(run)
    steps = {m["step"]: SPENT[what](m) for m in run.read("metrics") if m["stage"] == stage}
    first = min(steps)
    found = [e for e in run.read("evaluations") if e["stage"] == stage]
    spent = [sum(cost for step, cost in steps.items() if step < e["step"]) for e in found]
    assert first <= found[0]["step"], "the stage was evaluated before it began"
    return [float(s) for s in spent], [e["pass@1"]["estimate"] for e in found]


def equal_budgets(pairs: Sequence[Sequence[Run]]) -> dict[str, Any]:
    """By what was spent: the interval of the difference (second run less first) at the smaller of both budgets; nothing
    where a run spends none of it."""
    result = {}
    for what in ("tokens", "seconds"):
        plain, other, budgets = [], [], []
        for pair in pairs:
            curves = [curve(run, what) for run in pair]
            budget = min(spent[-1] for spent, _ in curves)
            (a, b) = (float(np.interp(budget, spent, accuracy)) for spent, accuracy in curves)
            plain.append(a)
            other.append(b)
            budgets.append(budget)
        if not all(budgets):
            continue
        gap = dataclasses.asdict(paired_difference(other, plain))
        result[what] = {**gap, "budget": float(np.mean(budgets))}
    return result
