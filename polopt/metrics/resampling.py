"""Bootstrap of means and of shares over independent units, which may have several rows each."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval, wilson

Numbers = NDArray[np.float64]
# Numbers in one block of resampled counts: 32 MB.
BLOCK = 4_000_000


def unit_means(unit: ArrayLike, columns: ArrayLike) -> tuple[NDArray[np.str_], Numbers]:
    """Returns the names of the units, [P], sorted, and the means of their rows, [P, K].

    unit: [N] the unit of each row. columns: [N, K].
    """
    names, place = np.unique(np.asarray(unit, str), return_inverse=True)
    x = np.asarray(columns, float)
    sums = np.zeros((len(names), x.shape[1]))
    np.add.at(sums, place.ravel(), x)
    return names, sums / np.bincount(place.ravel())[:, None]


def resampled_means(columns: ArrayLike, resamples: int, seed: int) -> Numbers:
    """Returns the column means of units drawn with replacement, [resamples, K]; columns: [P, K]."""
    x = np.asarray(columns, float)
    draw, n = np.random.default_rng(seed), len(x)
    block = max(1, BLOCK // n)
    sizes = [min(block, resamples - start) for start in range(0, resamples, block)]
    return np.concatenate([draw.multinomial(n, np.full(n, 1 / n), size) @ x / n for size in sizes])


def percentile_interval(estimate: float, drawn: ArrayLike, level: float, n: int) -> Interval:
    """Returns the percentile interval of resampled values, of which those that are not finite are left out; the whole
    line where none is left. n: independent units."""
    x = np.asarray(drawn, float)
    x = x[np.isfinite(x)]
    if not len(x):
        return Interval(estimate, -np.inf, np.inf, level, n)
    low, high = np.quantile(x, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level, n)


def share_interval(
    part: ArrayLike, whole: ArrayLike, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Interval | None:
    """Returns the share sum part / sum whole of P units with its bootstrap interval; None where sum whole is 0.

    part, whole: [P] with 0 <= part <= whole. A share that is 0 or 1 does not vary between draws: it gets Wilson's
    interval of as many units as have a whole.
    """
    x, y = np.asarray(part, float), np.asarray(whole, float)
    if not y.sum() > 0:
        return None
    estimate, n = float(x.sum() / y.sum()), int((y > 0).sum())
    if min(estimate, 1 - estimate) < 1e-12:
        return wilson(round(estimate) * n, n, level)
    drawn = resampled_means(np.stack([x, y], 1), resamples, seed)
    with np.errstate(divide="ignore", invalid="ignore"):
        return percentile_interval(estimate, drawn[:, 0] / drawn[:, 1], level, n)
