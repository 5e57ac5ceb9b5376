"""Intervals of statistics that are no means, from the statistic without each unit of the data."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from polopt.metrics.intervals import Interval


def jackknife(estimate: float, without: ArrayLike, level: float = 0.95) -> Interval:
    """Interval of a statistic of n independent units, from its values without each of them, [n]:

        estimate +- t(n-1) sqrt((n-1) / n sum_i (x_i - mean(x))^2)

    The estimated variance is on average not below that of the statistic of n - 1 units (Efron and Stein), so that the
    interval of a count of different things, whose bootstrap would count too few, errs on the wide side. One unit: the
    whole line.

    Raises:
        ValueError: no values, values that are not finite, or a level outside (0, 1).

    Source: Efron and Stein 1981, "The Jackknife Estimate of Variance".
    """
    x = np.asarray(without, float).ravel()
    if not x.size or not np.isfinite(x).all() or not math.isfinite(estimate):
        raise ValueError(f"jackknife: needs finite values, at least one, found {estimate} and {x.size} others")
    if not 0 < level < 1:
        raise ValueError(f"jackknife: level must lie between 0 and 1, as in 0.95, found {level}")
    if x.size == 1:
        return Interval(estimate, -math.inf, math.inf, level, 1)
    from scipy.special import stdtrit

    error = math.sqrt((x.size - 1) / x.size * float(((x - x.mean()) ** 2).sum()))
    half = float(stdtrit(x.size - 1, (1 + level) / 2)) * error
    return Interval(estimate, estimate - half, estimate + half, level, x.size)
