"""Intervals and tests of a mean that hold however often one looks while values are added."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval, t_interval

# Precision c^2 of the normal prior on the mean in standard deviations, whose own is so 1 / c = 3.2. At 5 to 10 values
# the interval is about as short as any c makes it: 1.9 and 1.8 times Student's.
PRECISION = 0.1


def anytime_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Interval of a mean that holds at all numbers of values at once: with probability `level` none of the intervals of
    the first 2, 3, 4, ... values leaves out the mean of the normal distribution that they come from. [n]

        mean +- sqrt( (T - 1) SS / (n (1 - T c^2 / (n + c^2))) ),  T = ((n + c^2) / (c^2 alpha^2))^(1 / n),

    with SS = sum (x - mean)^2 and alpha = 1 - level; the whole line while the denominator is not positive. These are
    the means whose `evidence` is below 1 / alpha. Wider than `t_interval`, which holds at one number that was decided
    beforehand.

    Raises:
        ValueError: no values, values that are not finite, or a level outside (0, 1).

    Source: Wang and Ramdas 2023, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
    variance", arXiv 2310.03722, after Lai 1976.
    """
    x = np.asarray(values, float).ravel()
    once = t_interval(x, level)
    n, mean = x.size, once.estimate
    ratio = ((n + PRECISION) / (PRECISION * (1 - level) ** 2)) ** (1 / n)
    room = 1 - ratio * PRECISION / (n + PRECISION)
    if n == 1 or room <= 0:
        return Interval(mean, -math.inf, math.inf, level, n)
    half = math.sqrt((ratio - 1) * float(np.square(x - mean).sum()) / (n * room))
    return Interval(mean, mean - half, mean + half, level, n)


def evidence(values: ArrayLike) -> NDArray[np.float64]:
    """Evidence against a mean of 0 after each value, [n]: the likelihood ratio of all means to 0, scale-free,

        sqrt(c^2 / (n + c^2)) (V / (V - S^2 / (n + c^2)))^(n / 2),    S = sum x,  V = sum x^2,

    under the prior of `PRECISION`. If the mean is 0 and values are normal, it begins at 1 and is a martingale: the
    chance that it ever reaches 1 / alpha is at most alpha. Values that are all 0 are no evidence.

    Raises:
        ValueError: values that are not finite.
    """
    x = np.asarray(values, float).ravel()
    if not np.isfinite(x).all():
        raise ValueError("evidence: values must be finite")
    n = np.arange(1, x.size + 1)
    sums, squares = np.cumsum(x), np.cumsum(np.square(x))
    share = np.divide(np.square(sums), squares * (n + PRECISION), out=np.zeros_like(sums), where=squares > 0)
    logs = np.log(PRECISION / (n + PRECISION)) / 2 - n / 2 * np.log1p(-share)
    return np.exp(np.where(squares > 0, np.minimum(logs, 700.0), 0.0))


def anytime_p(values: ArrayLike) -> float:
    """Returns the p value of a mean of 0 that holds however often one has looked: 1 / the largest `evidence` so far, at
    most 1.

    Raises:
        ValueError: as `evidence`.
    """
    return float(min(1.0, 1 / evidence(values).max(initial=1.0)))
