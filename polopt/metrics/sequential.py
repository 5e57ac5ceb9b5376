"""Intervals and tests of a mean that hold however often one looks while values are added.

They rest on evidence that is a nonnegative martingale under the hypothesis, or falls on average: the chance that it
ever reaches 1 / alpha is at most alpha (Ville). `evidence` is for normal values, as the scores of seeds,
`betting_evidence` for values with known limits, as differences of successes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

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


def betting_evidence(values: ArrayLike, side: Literal["both", "above", "below"] = "both") -> NDArray[np.float64]:
    """Evidence against a mean of 0 after each value in [-1, 1], [..., n]: the wealth of a gambler with 1 at the start,
    whose bet on a value depends on the values before it alone,

        E_n = prod_(i <= n) (1 + b_i x_i),    b_i = clip( sum_(j < i) x_j / (1/2 + sum_(j < i) x_j^2), 0, 0.9 ).

    side: "above" is E_n, evidence against means <= 0; "below" is that of -x, against means >= 0; "both" is the average
    of the two, evidence against a mean of 0. No distribution is assumed: given the values before it, each value's mean
    is 0 under the hypothesis.

    Raises:
        ValueError: values outside [-1, 1].

    Source: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", arXiv 2010.09686.
    The bet is the past's best one to second order, with half a value's square added.
    """
    x = np.asarray(values, float)
    if not (np.abs(x) <= 1).all():
        raise ValueError("betting_evidence: values must lie in [-1, 1]")
    bets = (np.cumsum(x, -1) - x) / (np.cumsum(x**2, -1) - x**2 + 0.5)
    signs = {"both": (1, -1), "above": (1,), "below": (-1,)}[side]
    logs = [np.cumsum(np.log1p(np.clip(sign * bets, 0.0, 0.9) * sign * x), -1) for sign in signs]
    return np.exp(np.minimum(np.logaddexp.reduce(logs, axis=0) - math.log(len(signs)), 700.0))


def anytime_p(values: ArrayLike, evidence_of: Callable[[ArrayLike], NDArray[np.float64]] = evidence) -> float:
    """Returns the p value of a mean of 0 that holds however often one has looked: 1 / the largest evidence so far, at
    most 1.

    evidence_of: `evidence` or `betting_evidence`.

    Raises:
        ValueError: as the evidence.
    """
    return float(min(1.0, 1 / evidence_of(values).max(initial=1.0)))
