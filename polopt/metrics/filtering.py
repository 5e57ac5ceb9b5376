"""Reliability of a reward on the rows that a selection keeps, to choose the selection to train with."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike


def r_squared(reward: ArrayLike, truth: ArrayLike) -> float:
    """Coefficient of determination of `truth` [n] by a straight line through `reward` [n]: their correlation, squared.

    In [0, 1]; NaN where one of them does not vary, or of fewer than two rows.

    Raises:
        ValueError: shapes that are not both [n].
    """
    x, y = np.asarray(reward, dtype=float), np.asarray(truth, dtype=float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"r_squared: reward and truth must both be [n], found {list(x.shape)} and {list(y.shape)}")
    if len(x) < 2:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    spread = (x @ x) * (y @ y)
    return float((x @ y) ** 2 / spread) if spread > 0 else math.nan


def most_reliable(
    reward: ArrayLike, truth: ArrayLike, kept: Mapping[str, ArrayLike]
) -> tuple[str | None, dict[str, float]]:
    """Returns the selection on whose rows the reward explains most of the true reward, and R^2 of each.

    Args:
        reward: [n] of the training. truth: [n] the true reward, from a few labelled rows.
        kept: by the name of a selection, the indices of the rows that it keeps of these n. Include the selection of
            all rows: it wins where the reward is least reliable at its extremes.

    The name is None where R^2 is defined for no selection; ties go to the one named first.

    Raises:
        ValueError: no selection is given, or shapes that are not both [n].

    Source: PF-PPO, arXiv:2409.06957.
    """
    if not kept:
        raise ValueError("most_reliable needs at least one selection's rows, found none")
    x, y = np.asarray(reward, dtype=float), np.asarray(truth, dtype=float)
    found = {name: r_squared(x[np.asarray(rows)], y[np.asarray(rows)]) for name, rows in kept.items()}
    known = {name: value for name, value in found.items() if not math.isnan(value)}
    return (max(known, key=known.__getitem__) if known else None), found
