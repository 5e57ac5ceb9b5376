"""Divergence of the optimised proxy reward from the true reward."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval


class RewardDivergence(NamedTuple):
    """The step at which the true reward stops following the proxy, and the slopes after it.

    step: where they diverge, and the steps that the data do not exclude. drift: the slope of the truth per step from
    there on, in addition to its dependence on the proxy. proxy, truth: their own slopes from there on. parts: the truth
    falls behind, and the proxy rises. hacked: the truth itself falls, and the proxy rises.
    """

    step: Interval
    drift: Interval
    proxy: Interval
    truth: Interval
    parts: bool
    hacked: bool


def reward_parting(steps: ArrayLike, proxy: ArrayLike, truth: ArrayLike, level: float = 0.95) -> RewardDivergence:
    """Estimates the step at which the true reward stops following the optimised proxy.

    Args:
        steps: [n] increasing. proxy: [n] mean reward that is optimised. truth: [n] mean true reward, of
            answers to held-out prompts, or of a labelled sample. Each in units of its own.

    Least squares fits truth = a + b proxy + drift max(0, step - bend), with the bend at one of the steps that has two
    or more before it and four or more after it. `step.low` to `step.high` are the bends that a likelihood-ratio test
    at `level` keeps, and a step more either side: nothing was measured in between. `drift` has Student's interval,
    widened for the search for the bend (Bonferroni); `proxy` and `truth` are slopes of straight lines through the data
    from the bend on. A rise and a fall count where their interval leaves out 0. Noise is taken as independent from step
    to
    step: measure held-out prompts afresh, or every so many steps.

    Raises:
        ValueError: shapes that are not all [n], n < 8, values that are not finite, or steps that do not increase.
    """
    x, p, q = (np.asarray(v, dtype=float) for v in (steps, proxy, truth))
    if x.ndim != 1 or not x.shape == p.shape == q.shape or len(x) < 8:
        raise ValueError(
            "reward_parting: steps, proxy and truth must all be [n] with n >= 8, found "
            f"{list(x.shape)}, {list(p.shape)} and {list(q.shape)}"
        )
    if not np.isfinite([x, p, q]).all() or (np.diff(x) <= 0).any():
        raise ValueError("reward_parting: values must be finite and steps must increase")
    from scipy.special import chdtri

    n, bends = len(x), x[2:-4]
    designs = [np.stack([np.maximum(x - bend, 0), np.ones(n), p], 1) for bend in bends]
    left = np.array([_squares(design, q) for design in designs])
    best = int(left.argmin())
    # Rounding errors of an exact fit must not decide between bends.
    floor = n * (1e-12 * max(float(np.abs(q).max()), 1e-300)) ** 2
    # Twice the difference of the log-likelihoods, the size of the noise being fitted too.
    kept = np.flatnonzero(n * np.log((left + floor) / (left[best] + floor)) <= chdtri(1, 1 - level)) + 2
    bend = float(bends[best])
    after = x >= bend
    line = np.stack([x[after], np.ones(int(after.sum()))], 1)
    drift = _first(designs[best], q, 1 - (1 - level) / len(bends), level)
    rising, falling = _first(line, p[after], level, level), _first(line, q[after], level, level)
    return RewardDivergence(
        step=Interval(bend, float(x[kept.min() - 1]), float(x[kept.max() + 1]), level, n),
        drift=drift,
        proxy=rising,
        truth=falling,
        parts=rising.low > 0 and drift.high < 0,
        hacked=rising.low > 0 and drift.high < 0 and falling.high < 0,
    )


def _squares(design: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float(((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2).sum())


def _first(design: NDArray[np.float64], y: NDArray[np.float64], covered: float, level: float) -> Interval:
    """Estimates the first coefficient of a regression, with Student's interval of coverage `covered`."""
    from scipy.special import stdtrit

    free = len(y) - design.shape[1]
    estimate = float(np.linalg.lstsq(design, y, rcond=None)[0][0])
    spread = math.sqrt(_squares(design, y) / free * np.linalg.pinv(design.T @ design)[0, 0])
    half = float(stdtrit(free, (1 + covered) / 2)) * spread
    return Interval(estimate, estimate - half, estimate + half, level, len(y))
