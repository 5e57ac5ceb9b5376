"""Power laws of success rates: how the gap to a rate of 1 shrinks as data grow."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]
# Added to successes and to failures of every point, so that points without any of either have a likelihood to climb.
PSEUDO = 1e-6
NEWTON = 60  # Steps at most; with a floor they end sooner, as its grid is no more exact.
FLOORS = np.linspace(0.0, 0.96, 49)


@dataclasses.dataclass(frozen=True, eq=False)
class PowerLaw:
    """gap(N) = floor + factor N^exponent, cut at 1. Numbers, or arrays of one shape for as many laws."""

    factor: Numbers
    exponent: Numbers
    floor: Numbers

    def gap(self, size: ArrayLike) -> Numbers:
        """Evaluates the laws [...] at sizes that broadcast against them."""
        found: Numbers = np.minimum(self.floor + self.factor * np.asarray(size, float) ** self.exponent, 1.0)
        return found


def fit_power_law(size: ArrayLike, failures: ArrayLike, trials: ArrayLike, *, floor: bool = False) -> PowerLaw:
    """Fits power laws to failures [..., n] of trials [n] at sizes [n], by the likelihood of binomial counts,

        sum_i f_i log g(N_i) + (t_i - f_i) log(1 - g(N_i)),    g(N) = c + b N^a,

    over laws with g <= 1 at all sizes. Points without failures, or without successes, break the logarithms of a
    straight line, and not this. It is concave in (log b, a) for a floor of 0, and is climbed by Newton's method, all
    fits at once. Means of partial scores count as fractions of successes.

    floor: whether c is fitted, on a grid of 0.02; 0 otherwise.

    Raises:
        ValueError: fewer than 2 different sizes, 3 with a floor, sizes or trials that are not positive, or failures
            outside 0..trials.
    """
    N, f, t = np.asarray(size, float), np.asarray(failures, float), np.asarray(trials, float)
    least = 3 if floor else 2
    if len(np.unique(N)) < least or not (N > 0).all() or not (t > 0).all() or (f < 0).any() or (f > t).any():
        raise ValueError(
            f"fit_power_law: needs {least} different sizes > 0, trials > 0 and failures from 0 to trials, found sizes "
            f"{np.unique(N)[:9].tolist()}"
        )
    x = np.log(N) - np.log(N).mean()
    f, s = f + PSEUDO, t - f + PSEUDO
    best: tuple[Numbers, Numbers, Numbers, Numbers] | None = None
    mean = float((f.sum(-1) / (f + s).sum(-1)).max())  # a floor above the mean gap is never the best
    for c in FLOORS[mean > FLOORS] if floor else FLOORS[:1]:
        level, slope, likelihood = _climb(x, f, s, float(c))
        found = (likelihood, level, slope, np.full(level.shape, c))
        if best is None:
            best = found
        else:
            better = likelihood > best[0] + 1e-9
            best = tuple(np.where(better, new, old) for new, old in zip(found, best, strict=True))  # type: ignore[assignment]
    assert best is not None
    _, level, slope, floors = best
    return PowerLaw(np.exp(level - slope * np.log(N).mean()), slope, floors)


def _climb(x: Numbers, f: Numbers, s: Numbers, c: float) -> tuple[Numbers, Numbers, Numbers]:
    """Returns the level and the slope of u = log(b N^a) over x, [...] each, and the likelihood that they reach."""
    top = np.log(1 - c)

    def likelihood(level: Numbers, slope: Numbers) -> Numbers:
        u = level[..., None] + slope[..., None] * x
        with np.errstate(all="ignore"):  # beyond the top it is no number, and refused
            found = f * np.log(c + np.exp(u)) + s * np.log(1 - c - np.exp(u))
        return np.where((u < top).all(-1), found.sum(-1), -np.inf)

    share = np.clip(f.sum(-1) / (f + s).sum(-1) - c, 1e-3, (1 - c) * 0.9)
    level, slope = np.log(share), np.zeros_like(share)
    now = likelihood(level, slope)
    for _ in range(NEWTON):
        e = np.exp(level[..., None] + slope[..., None] * x)
        first = f * e / (c + e) - s * e / (1 - c - e)
        # The curvature's concave part alone: of the other one, f e c / (c + e)^2, Newton's step could climb nothing.
        second = f * e**2 / (c + e) ** 2 * (c > 0) + s * e * (1 - c) / (1 - c - e) ** 2
        g0, g1 = first.sum(-1), (first * x).sum(-1)
        h00, h01, h11 = second.sum(-1), (second * x).sum(-1), (second * x**2).sum(-1)
        det = h00 * h11 - h01**2 + 1e-300
        d0, d1 = (h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det
        step, near = np.ones_like(now), 1e-10 * (1 + np.abs(now))
        for _ in range(30):
            further = likelihood(level + step * d0, slope + step * d1)
            worse = ~(further >= now - near)  # at the top rounding alone decides
            if not worse.any():
                break
            step = np.where(worse, step / 2, step)
        gained = further > now
        level, slope = np.where(gained, level + step * d0, level), np.where(gained, slope + step * d1, slope)
        done = further - now < (near if c == 0 else 1e-4)
        now = np.where(gained, further, now)
        if done.all():
            break
    return level, slope, now


def log_correlation(size: ArrayLike, gap: ArrayLike) -> Numbers:
    """Returns Pearson's correlation of log size [n] and log gap [..., n], over the points with a gap above 0; NaN with
    fewer than 2 of them, or without spread.
    """
    g = np.asarray(gap, float)
    w = (g > 0).astype(float)
    x = np.broadcast_to(np.log(np.asarray(size, float)), g.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(g > 0, np.log(g), 0.0)
        n = w.sum(-1, keepdims=True)
        x, y = (w * (v - (w * v).sum(-1, keepdims=True) / n) for v in (x, y))
        found: Numbers = (x * y).sum(-1) / np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
    return found
