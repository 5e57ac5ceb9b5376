"""Scaling curves: saturating fits of performance against compute."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval


@dataclasses.dataclass(frozen=True)
class Sigmoid:
    """perf(C) = start + (most - start) / (1 + (half / C)^steepness), with each number's interval where it was fitted.

    start: performance without compute. most: the asymptote. half: the compute at half of the rise.
    error: root mean square of the residuals.
    """

    start: Interval
    most: Interval
    half: Interval
    steepness: Interval
    error: float

    def __call__(self, compute: ArrayLike) -> NDArray[np.float64]:
        """Evaluates the curve, extrapolated outside of the data."""
        numbers = (self.start.estimate, self.most.estimate, math.log(self.half.estimate), self.steepness.estimate)
        return _curve(np.log(np.asarray(compute, dtype=float)), *numbers)


def fit_sigmoid(compute: ArrayLike, performance: ArrayLike, level: float = 0.95) -> Sigmoid:
    """Fits the saturating curve by least squares to performance [n] at compute [n], from n >= 5 points.

    Intervals are Student's, from the curvature at the best fit: `half` and `steepness` on a logarithmic scale. Points
    that still rise at the end leave `most` undetermined, as its interval shows; flat points determine no curve.
    Several starts are tried, and the best is kept. Compute may be rollouts, examples or steps; only its ratios matter.

    Raises:
        ValueError: shapes that are not both [n], n < 5, compute that is not positive, values that are not finite, or
            fewer than 4 different amounts of compute.

    Source: the scaling curves of arXiv:2512.20061; the shape is Hill's, over the logarithm of compute.
    """
    c, y = np.asarray(compute, dtype=float), np.asarray(performance, dtype=float)
    if c.ndim != 1 or c.shape != y.shape or len(c) < 5 or len(np.unique(c)) < 4:
        raise ValueError(
            "fit_sigmoid: compute and performance must both be [n] with n >= 5 and 4 different amounts or more, found "
            f"{list(c.shape)} and {list(y.shape)}, {len(np.unique(c))} different"
        )
    if not np.isfinite([c, y]).all() or (c <= 0).any():
        raise ValueError("fit_sigmoid: values must be finite and compute positive")
    from scipy.optimize import least_squares

    x, span = np.log(c), max(float(np.ptp(y)), 1e-9)

    def left(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return _curve(x, at[0], at[1], at[2], math.exp(at[3])) - y

    # The middle may lie a decade or two outside of the data; a curve steeper than 20 is a step.
    low = [y.min() - 5 * span, y.min() - 5 * span, x.min() - 5, math.log(0.05)]
    high = [y.max() + 5 * span, y.max() + 5 * span, x.max() + 5, math.log(20)]
    first, last = y[x == x.min()].mean(), y[x == x.max()].mean()
    starts = [[first, last, m, s] for m in np.quantile(x, (0.25, 0.5, 0.75)) for s in (-0.7, 0.0, 1.0)]
    found = min((least_squares(left, s, bounds=(low, high)) for s in starts), key=lambda r: r.cost)
    return _described(found.x, found.jac, 2 * float(found.cost), len(x), level)


def _described(at: NDArray[np.float64], slope: NDArray[np.float64], squares: float, n: int, level: float) -> Sigmoid:
    from scipy.special import stdtrit

    free = max(n - 4, 1)
    covariance = np.linalg.pinv(slope.T @ slope) * squares / free
    half = float(stdtrit(free, (1 + level) / 2)) * np.sqrt(np.diag(covariance))
    # A direction that the points do not determine has no curvature, and an infinite interval.
    blind = np.linalg.norm(slope, axis=0) < 1e-12
    half = np.where(blind, math.inf, half)
    plain = [Interval(float(v), float(v - h), float(v + h), level, n) for v, h in zip(at, half, strict=True)]
    grown = [Interval(math.exp(i.estimate), float(np.exp(i.low)), float(np.exp(i.high)), level, n) for i in plain[2:]]
    return Sigmoid(plain[0], plain[1], grown[0], grown[1], math.sqrt(squares / n))


def _curve(x: NDArray[np.float64], start: float, most: float, half: float, steepness: float) -> NDArray[np.float64]:
    """Evaluates the curve at the logarithm x of compute; half is a logarithm too. exp would overflow, tanh does not."""
    return start + (most - start) * (1 + np.tanh(steepness * (x - half) / 2)) / 2
