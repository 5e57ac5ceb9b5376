"""Concordance of a score with known labels: the area under the ROC curve, and its form for more than two labels."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval, wilson


@dataclasses.dataclass(frozen=True)
class Concordance:
    """The order of rows of known labels by a score, and its errors.

    overall: the share of pairs of different labels that the score orders as the labels do, ties counting half; of two
        labels the area under the ROC curve. Its interval is the jackknife's over rows, and Wilson's of the smaller
        class where every pair, or none, is ordered rightly. placements: of each row the share of the rows with another
        label that it is ordered rightly with, [N]. Source: DeLong et al. 1988.
    """

    overall: Interval
    placements: NDArray[np.float64] = dataclasses.field(repr=False)


def concordance(values: ArrayLike, labels: ArrayLike, level: float = 0.95) -> Concordance:
    """Compares scores with labels, [N] each; of two labels the overall value is Mann and Whitney's U / (n m).

    Raises:
        ValueError: values or labels that are not finite, of unlike length, or all labels the same.
    """
    from scipy.special import ndtri

    x, y = np.asarray(values, float), np.asarray(labels, float)
    if x.shape != y.shape or x.ndim != 1 or not np.isfinite(x).all() or not np.isfinite(y).all():
        raise ValueError(
            f"concordance: values and labels must be finite, [N] each, found {list(x.shape)} and {list(y.shape)}"
        )
    if len(np.unique(y)) < 2:
        raise ValueError(f"concordance: labels must differ, found {len(y)} rows of label {y[0] if len(y) else None}")
    right, count = np.zeros(len(x)), np.zeros(len(x))
    for label in np.unique(y):
        rows = y == label
        for other, sign in ((np.sort(x[y < label]), 1), (np.sort(x[y > label]), -1)):
            below = (np.searchsorted(other, x[rows]) + np.searchsorted(other, x[rows], side="right")) / 2
            right[rows] += below if sign == 1 else len(other) - below
            count[rows] += len(other)
    total, pairs = right.sum() / 2, count.sum() / 2
    found, smaller = float(total / pairs), int(min(np.unique(y, return_counts=True)[1]))
    if found in (0.0, 1.0):
        return Concordance(wilson(round(found) * smaller, smaller, level), right / count)
    left = pairs - count
    # Without its only row of a label a pair is left nowhere: that row is not left out.
    without = (total - right)[left > 0] / left[left > 0]
    n = len(without)
    spread = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    half = float(ndtri((1 + level) / 2)) * spread
    return Concordance(Interval(found, max(0.0, found - half), min(1.0, found + half), level, len(x)), right / count)
