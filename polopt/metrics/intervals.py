"""Confidence intervals of estimates. The unit is whatever was sampled independently.

For held-out accuracy that is the problem, never the sample; for a method it is the seed, never the episode.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and its two-sided confidence interval. `n` counts independent units."""

    estimate: float
    low: float
    high: float
    level: float
    n: int

    def __str__(self) -> str:
        return f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}] ({self.level:.0%}, n = {self.n})"


def wilson(successes: float, n: int, level: float = 0.95) -> Interval:
    """Wilson score interval of a proportion: one independent yes or no for each of n problems.

        centre = (p + z^2 / 2n) / (1 + z^2 / n),  half = z / (1 + z^2 / n) sqrt(p (1-p) / n + z^2 / 4n^2)

    Unlike p +- z sqrt(p (1-p) / n) it stays inside [0, 1] and keeps a width at 0 of n and n of n.

    Raises:
        ValueError: n < 1, successes outside 0..n, or a level outside (0, 1).

    Source: Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    _check(n, level, "wilson")
    if not 0 <= successes <= n:
        raise ValueError(f"wilson: successes must be from 0 to n = {n}, found {successes:g}")
    from scipy.special import ndtri

    z2 = float(ndtri((1 + level) / 2)) ** 2
    p = successes / n
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # At p = 0 and p = 1 the end is exactly p; min and max remove the rounding error.
    return Interval(p, max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)), level, n)


def clopper_pearson(successes: float, n: int, level: float = 0.95) -> Interval:
    """Exact interval of a proportion, from the binomial distribution itself: it covers at least `level`, always.

        low = Beta^-1(alpha / 2; s, n - s + 1),   high = Beta^-1(1 - alpha / 2; s + 1, n - s)

    Wider than `wilson`, which covers `level` on average.

    Raises:
        ValueError: as `wilson`.

    Source: Clopper and Pearson 1934, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the
    Binomial".
    """
    _check(n, level, "clopper_pearson")
    if not 0 <= successes <= n:
        raise ValueError(f"clopper_pearson: successes must be from 0 to n = {n}, found {successes:g}")
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return Interval(successes / n, low, high, level, n)


def t_interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student's interval of a mean: mean +- t(n-1) s / sqrt(n). For seeds, one value each [n].

    With n = 10 and 95 %, t is 2.262, not 1.96. The spread of one value is unknown: its interval is the
    whole line.

    Raises:
        ValueError: no values, values that are not finite, or a level outside (0, 1).
    """
    x = _values(values, "t_interval")
    _check(x.size, level, "t_interval")
    mean = float(x.mean())
    if x.size == 1:
        return Interval(mean, -math.inf, math.inf, level, 1)
    from scipy.special import stdtrit

    half = float(stdtrit(x.size - 1, (1 + level) / 2)) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return Interval(mean, mean - half, mean + half, level, x.size)


def rate_interval(rates: ArrayLike, level: float = 0.95) -> Interval:
    """Interval of a mean success rate over problems, from one rate in [0, 1] for each problem [P].

    A problem's rate is its solved samples / its samples, or its pass@k. Samples of one problem share its
    difficulty, so the problem is the unit, however many samples it has. Rates that are all 0 or 1 (one
    sample each, or nothing between never and always) get `wilson`; others `t_interval`, cut to [0, 1].

    Raises:
        ValueError: no rates, a rate outside [0, 1], or a level outside (0, 1).
    """
    x = _values(rates, "rate_interval")
    _check(x.size, level, "rate_interval")
    if (x < 0).any() or (x > 1).any():
        raise ValueError(f"rate_interval: rates must lie in [0, 1], found {x[(x < 0) | (x > 1)][0]:g}")
    if np.isin(x, (0.0, 1.0)).all():
        return wilson(float(x.sum()), x.size, level)
    result = t_interval(x, level)
    return dataclasses.replace(result, low=max(0.0, result.low), high=min(1.0, result.high))


def rate_change(before: ArrayLike, after: ArrayLike, level: float = 0.95) -> Interval:
    """Interval of the change of a mean success rate, from one rate in [0, 1] for each problem, before [P] and after.

        d = a - b,   low = d - sqrt(x^2 - 2 r x y + y^2)  with x = a - low_a, y = high_b - b,
                     high = d + sqrt(u^2 - 2 r u v + v^2)  with u = high_a - a, v = b - low_b,

    where a, b and their ends are those of `rate_interval`, and r is the correlation of the two rates over the problems:
    the same problems in the same order are compared pair by pair. r is 0 where one of the rates does not vary, and
    where there are not equally many problems, which are then taken for independent ones. Of rates that are all 0 or 1,
    n11 n00 - n10 n01, the numerator of r, is lowered by n / 2 if it is positive, not below 0: without that the interval
    of lists that are equal can have no width.

    Raises:
        ValueError: as `rate_interval`.

    Source: Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions based on
    paired data", method 10; Zou and Donner 2008 for ends that come from any interval.
    """
    a, b = rate_interval(after, level), rate_interval(before, level)
    x, y = _values(after, "rate_change"), _values(before, "rate_change")
    r = _pair_correlation(x, y) if x.size == y.size else 0.0

    def half(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * r * one * other + other**2))

    d = a.estimate - b.estimate
    low = d - half(a.estimate - a.low, b.high - b.estimate)
    high = d + half(a.high - a.estimate, b.estimate - b.low)
    return Interval(d, max(-1.0, low), min(1.0, high), level, min(x.size, y.size))


def _pair_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Correlation of pairs, 0 if one side does not vary; of pairs of 0 and 1 with Newcombe's correction."""
    n = x.size
    both = n * float(x @ y) - float(x.sum() * y.sum())
    each = [n * float(v @ v) - float(v.sum()) ** 2 for v in (x, y)]
    if x.std() == 0 or y.std() == 0:
        return 0.0
    if np.isin([x, y], (0.0, 1.0)).all() and both > 0:
        both = max(both - n / 2, 0.0)
    return max(-1.0, min(1.0, both / math.sqrt(each[0] * each[1])))


Statistic = Callable[..., NDArray[np.float64]]


def bootstrap(
    statistic: Statistic, *samples: ArrayLike, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval: each sample [n_i] is resampled with replacement, independently of the others.

    `statistic(*arrays)` takes arrays [..., n_i] and returns [...]. The same seed gives the same interval.
    With fewer than about ten values a bootstrap interval is too narrow; for a mean prefer `t_interval`.

    Raises:
        ValueError: an empty sample, values that are not finite, a level outside (0, 1), resamples < 1.
    """
    arrays = [_values(s, "bootstrap") for s in samples]
    n = min((a.size for a in arrays), default=0)
    _check(n, level, "bootstrap")
    if resamples < 1:
        raise ValueError(f"bootstrap: resamples must be at least 1, found {resamples}")
    generator = np.random.default_rng(seed)
    resampled = [a[generator.integers(a.size, size=(resamples, a.size))] for a in arrays]
    low, high = np.quantile(statistic(*resampled), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(*arrays)), float(low), float(high), level, n)


def _values(values: ArrayLike, caller: str) -> NDArray[np.float64]:
    x = np.asarray(values, float).ravel()
    if not np.isfinite(x).all():
        raise ValueError(f"{caller}: values must be finite, found {x[~np.isfinite(x)][0]}")
    return x


def _check(n: int, level: float, caller: str) -> None:
    if n < 1:
        raise ValueError(f"{caller}: needs at least one value, found none")
    if not 0 < level < 1:
        raise ValueError(f"{caller}: level must lie between 0 and 1, as in 0.95, found {level}")
