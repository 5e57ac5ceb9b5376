"""Doubly robust estimates with limited weights, on logs in which some actions are rare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polopt.claim import Finding
from polopt.lab.logged import rare_actions, with_values
from polopt.metrics import DirectMethod, DoublyRobust, LeastError, LoggedValues, OffPolicyEstimator

LOGS, DECISIONS = 50, 400


def squared_error(metric: OffPolicyEstimator | LeastError, seed: int) -> float:
    """Returns the mean squared error of an estimate over logs of one random problem, with a model's values."""
    problem, behaviour, target, values = rare_actions(seed)
    table, chance = problem.all_episodes(behaviour, target)
    table, truth = with_values(table, values, target), problem.value(target, 1.0)
    draw = np.random.default_rng(seed + 1_000_000)
    rows = draw.choice(len(table), (LOGS, DECISIONS), p=chance / chance.sum())
    found = [metric.terms(table[row]).estimate() for row in rows]
    return float(((np.array(found) - truth) ** 2).mean())


def limits_of(build: Callable[[float], Any], *, small: float, large: float, between: float) -> Finding:
    """Returns the finding that an estimator with a limit becomes its two neighbours at the ends of the limit's range:
    the doubly robust estimate, and the mean of the model's values."""
    off = {"doubly robust": 0.0, "the model alone": 0.0}
    apart = dict.fromkeys(off, np.inf)
    neighbours = {
        "doubly robust": (DoublyRobust(model=LoggedValues()), large),
        "the model alone": (DirectMethod(model=LoggedValues()), small),
    }
    for seed in range(5):
        problem, behaviour, target, values = rare_actions(seed)
        table = with_values(problem.sample(behaviour, target, DECISIONS, seed), values, target)
        middle = build(between).terms(table).estimate()
        for name, (neighbour, size) in neighbours.items():
            expected = neighbour.terms(table).estimate()
            off[name] = max(off[name], abs(build(size).terms(table).estimate() - expected))
            apart[name] = min(apart[name], abs(middle - expected))
    return Finding(
        measured={
            **{f"distance to {name}": value for name, value in off.items()},
            **{f"distance to {name}, limit {between:g}": float(value) for name, value in apart.items()},
        },
        criterion=f"both distances < 1e-6 at the ends of the range, and with a limit of {between:g} above 1e-3",
        holds=max(off.values()) < 1e-6 and min(apart.values()) > 1e-3,
        note=f"Five random problems, logs of {DECISIONS} decisions.",
    )


def distance(found: ArrayLike, expected: ArrayLike) -> float:
    """Returns the largest difference of two arrays of numbers."""
    return float(np.abs(np.asarray(found, float) - np.asarray(expected, float)).max())
