"""Calibration: how near predicted probabilities are to frequencies, and the temperature that brings them nearer."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bins = Literal["quantile", "uniform"]

# Ends of the temperatures that are searched: rows that are all right have no best one, as the smaller is the better.
COLDEST, HOTTEST = 1e-4, 1e4


class ReliabilityBin(NamedTuple):
    """Rows of similar predictions. rows: their number. predicted: their mean probability. observed: the frequency."""

    rows: int
    predicted: float
    observed: float


def reliability(chance: ArrayLike, happened: ArrayLike, bins: int = 10, by: Bins = "quantile") -> list[ReliabilityBin]:
    """Returns the points of a reliability diagram, one for each bin that is not empty, by increasing probability.

    Args:
        chance: [n] predicted probabilities. happened: [n] 1 or 0; a share in between counts as such.
        by: "quantile" for bins of equally many rows, of which those with one probability stay in one bin; "uniform" for
            bins of equal width in [0, 1].

    Raises:
        ValueError: shapes that are not both [n]; no rows; bins < 1; a probability outside [0, 1].
    """
    p, y = _both("reliability", chance, happened)
    if bins < 1:
        raise ValueError(f"reliability: bins must be >= 1, found {bins}")
    order = np.argsort(p, kind="stable")
    if by == "quantile":
        sizes = [len(part) for part in np.array_split(order, min(bins, len(p)))]
        cuts = np.searchsorted(p[order], p[order][np.cumsum(sizes)[:-1] - 1], side="right")
        parts = np.split(order, cuts)
    else:
        number = np.clip((p[order] * bins).astype(int), 0, bins - 1)
        parts = np.split(order, np.searchsorted(number, np.arange(1, bins)))
    return [ReliabilityBin(len(part), float(p[part].mean()), float(y[part].mean())) for part in parts if len(part)]


def calibration_error(chance: ArrayLike, liked: ArrayLike, bins: int = 10, by: Bins = "quantile") -> float:
    """Expected calibration error: mean distance between predicted probability and frequency, over `bins` bins of
    equally many rows, [n] each. In bins of equal width, `by` "uniform", a rare reaction would fall into the first.

    With few rows it is above 0 for a calibrated model too. Source: Naeini et al. 2015; Guo et al. 2017,
    arXiv:1706.04599.

    Raises:
        ValueError: as `reliability`.
    """
    found = reliability(chance, liked, bins, by)
    total = sum(part.rows for part in found)
    return sum(part.rows * abs(part.predicted - part.observed) for part in found) / total


def log_loss(chance: ArrayLike, happened: ArrayLike) -> float:
    """Mean negative log-probability of what happened, [n] each, in nats: log 2 for a chance of 1/2 everywhere.

    Infinite if something happened whose probability was 0.

    Raises:
        ValueError: as `reliability`.
    """
    from scipy.special import xlogy

    p, y = _both("log_loss", chance, happened)
    return float(-(xlogy(y, p) + xlogy(1 - y, 1 - p)).mean())


def brier_score(chance: ArrayLike, happened: ArrayLike) -> float:
    """Mean squared distance of predicted probability and what happened, [n] each: 1/4 for a chance of 1/2 everywhere.

    Raises:
        ValueError: as `reliability`.
    """
    p, y = _both("brier_score", chance, happened)
    return float(np.square(p - y).mean())


def fit_temperature(margin: ArrayLike, happened: ArrayLike, link: Literal["logistic", "probit"] = "logistic") -> float:
    """Temperature T that minimises the log loss of F(margin / T), with F the logistic or the normal distribution.

        mean_i -[y_i log F(m_i / T) + (1 - y_i) log F(-m_i / T)]

    is convex in 1 / T, so that the root of its derivative is found by bisection; T stays in [1e-4, 1e4], which it would
    leave where all predictions are right, or no better than chance. No prediction changes its side of 1/2.

    Args:
        margin: [n] predicted log-odds, or, for "probit", numbers z with probability Phi(z). happened: [n] in [0, 1].

    Raises:
        ValueError: shapes that are not both [n]; no rows; a margin that is not finite.

    Source: Guo et al. 2017, arXiv:1706.04599.
    """
    from scipy.optimize import brentq
    from scipy.special import expit, log_ndtr

    m, y = np.asarray(margin, dtype=float), np.asarray(happened, dtype=float)
    _check(m, y, "fit_temperature: margin")
    if not np.isfinite(m).all():
        raise ValueError("fit_temperature: margins must be finite numbers")

    def hazard(z: NDArray[np.float64]) -> NDArray[np.float64]:
        """The derivative of log F."""
        if link == "logistic":
            return np.asarray(expit(-z))
        return np.exp(-z * z / 2 - math.log(2 * math.pi) / 2 - log_ndtr(z))

    def slope(inverse: float) -> float:
        """The derivative of the log loss in 1 / T."""
        z = m * inverse
        return float(((1 - y) * m * hazard(-z) - y * m * hazard(z)).mean())

    if slope(1 / COLDEST) <= 0:
        return COLDEST
    if slope(1 / HOTTEST) >= 0:
        return HOTTEST
    return 1 / float(brentq(slope, 1 / HOTTEST, 1 / COLDEST, xtol=1e-14, rtol=1e-12))


def _both(name: str, chance: ArrayLike, happened: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    p, y = np.asarray(chance, dtype=float), np.asarray(happened, dtype=float)
    _check(p, y, f"{name}: chance")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"{name}: probabilities must be in [0, 1], found {p.min():g} to {p.max():g}")
    return p, y


def _check(x: NDArray[np.float64], happened: NDArray[np.float64], name: str) -> None:
    if x.ndim != 1 or x.shape != happened.shape or not len(x):
        raise ValueError(
            f"{name} and happened must both be [n] with n >= 1, found {list(x.shape)} and {list(happened.shape)}"
        )
    if not ((happened >= 0) & (happened <= 1)).all():
        raise ValueError(
            f"{name.split(':')[0]}: happened must be in [0, 1], found {happened.min():g} to {happened.max():g}"
        )
