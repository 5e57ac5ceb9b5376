"""The estimates in a record of evaluations.jsonl, and their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The unit of an estimate that names none: a share of problems, in [0, 1].
SHARE = "share"
# Names of the estimates of held-out preferences, the main one first.
PREFERENCES = ("preference_accuracy", "preference_margin")
# The same of held-out labels.
LABELS = ("label_auc",)


def estimates_of(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the estimates of a record by name, the main one first: maps of "estimate", "low", "high" and,
    if it is not a share of problems, "unit"."""
    return {k: value for k, value in record.items() if isinstance(value, Mapping) and "estimate" in value}


def score_of(record: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Returns the name and the estimate of a record's main score: pass@1 of language runs, return of control runs."""
    return next(iter(estimates_of(record).items()))


def unit_of(estimate: Mapping[str, Any]) -> str:
    """Returns the unit of an estimate."""
    return str(estimate.get("unit", SHARE))


def cases_of(unit: str) -> str:
    """Returns what the cases of an evaluation are called, by the unit of its score."""
    return "episodes" if unit == "return" else "problems"


def label_of(name: str, estimate: Mapping[str, Any]) -> str:
    """Returns a readable name of the quantity that an estimate measures."""
    plain = unit_of(estimate) == SHARE and name.startswith("pass@")
    return "held-out accuracy" if plain else f"held-out {name.replace('_', ' ')}"


def spelt(value: float, sign: str = "") -> str:
    """Formats a number of any unit but a share: with one decimal, or three if it is below 10. sign: "+" for a
    change."""
    return f"{value:{sign}.{1 if abs(value) >= 10 else 3}f}"
