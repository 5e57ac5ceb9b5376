"""Comparison of methods over seeds: differences with intervals, and the probability of improvement on a new seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval, bootstrap, t_interval


def paired_difference(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Interval:
    """Interval of mean(x - y) where x[i] and y[i] share seed i: Student's t on the n differences.

    Raises:
        ValueError: lengths that differ, or no values.
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    if a.shape != b.shape:
        raise ValueError(f"paired_difference: needs one y for each x, found {a.size} and {b.size} values")
    return t_interval(a - b, level)


def welch_difference(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Interval:
    """Interval of mean(x) - mean(y) of independent seeds with variances of their own.

        diff +- t(nu) sqrt(u + v),  u = s_x^2 / n_x,  v = s_y^2 / n_y,
        nu = (u + v)^2 / (u^2 / (n_x - 1) + v^2 / (n_y - 1))

    One value on either side gives the whole line. `n` is the smaller sample's size.

    Raises:
        ValueError: no values, or values that are not finite.

    Source: Welch 1947, "The Generalization of Student's Problem".
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    difference = t_interval(a, level).estimate - t_interval(b, level).estimate
    n = min(a.size, b.size)
    if n == 1:
        return Interval(difference, -math.inf, math.inf, level, 1)
    from scipy.special import stdtrit

    u, v = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    if u + v == 0:
        return Interval(difference, difference, difference, level, n)
    freedom = (u + v) ** 2 / (u**2 / (a.size - 1) + v**2 / (b.size - 1))
    half = float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(u + v)
    return Interval(difference, difference - half, difference + half, level, n)


def improvement(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(X > Y) + P(X = Y) / 2 over all pairs, [..., n] and [..., m] -> [...]: Mann-Whitney's U / (n m)."""
    return (np.sign(x[..., :, None] - y[..., None, :]).mean((-2, -1)) + 1) / 2


def probability_of_improvement(
    x: ArrayLike, y: ArrayLike, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Probability that a new seed of x beats a new seed of y, with a bootstrap interval; 0.5 means no difference.

    When every x beats every y the estimate and both ends are 1: few seeds cannot distinguish 0.95 from 1.

    Source: Agarwal et al. 2021, "Deep RL at the Edge of the Statistical Precipice", arXiv 2108.13264.
    """
    return bootstrap(improvement, x, y, level=level, resamples=resamples, seed=seed)


def iqm(values: ArrayLike) -> NDArray[np.float64]:
    """Interquartile mean along the last axis, [..., n] -> [...]: the lowest and highest floor(n/4) left out.

    Source: Agarwal et al. 2021, arXiv 2108.13264.
    """
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(np.asarray(values, float), 0.25, axis=-1))


@dataclasses.dataclass(frozen=True)
class MethodRuns:
    """One method's runs: its `seeds` [n], their `final` scores [n] and `curves` [n] of (step, score).

    Raises:
        ValueError: lists of different lengths, no seeds, or a seed given twice.
    """

    name: str
    seeds: Sequence[int]
    final: Sequence[float]
    curves: Sequence[Sequence[tuple[float, float]]] = ()

    def __post_init__(self) -> None:
        n = len(self.seeds)
        if not n or len(set(self.seeds)) != n or len(self.final) != n or len(self.curves) not in (0, n):
            raise ValueError(
                f"method {self.name!r}: needs one final accuracy, and one curve or none, for each of its "
                f"distinct seeds; found seeds {list(self.seeds)}, {len(self.final)} final, "
                f"{len(self.curves)} curves"
            )

    def band(self, level: float = 0.95) -> list[tuple[float, Interval]]:
        """Mean over seeds with its t interval at every step that all seeds have reached."""
        curves = [dict(c) for c in self.curves]
        steps = sorted(set.intersection(*map(set, curves))) if curves else []
        return [(s, t_interval([c[s] for c in curves], level)) for s in steps]


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One method in the table; the last three are against the first method, and None for itself."""

    name: str
    final: Interval
    iqm: float
    difference: Interval | None = None
    improvement: Interval | None = None
    paired: bool | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Several methods on the same tasks, compared with the first.

    unit: of the scores: "share" of an accuracy, in [0, 1], or another's own name, as "return".

    Raises:
        ValueError: no method, or two with one name.
    """

    methods: Sequence[MethodRuns]
    level: float = 0.95
    unit: str = "share"

    def __post_init__(self) -> None:
        names = [m.name for m in self.methods]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"Comparison: needs one method or more, each with a name of its own, found {names}")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Builds a comparison from plain data: `{"methods": [{"name", "seeds", "final", "curves"}, ...], "level":
        0.95}`.

        Differences found there are ignored: they are computed again from the seeds.
        """
        trials = [
            MethodRuns(
                name=str(m["name"]),
                seeds=tuple(m["seeds"]),
                final=tuple(m["final"]),
                curves=tuple(tuple((s, a) for s, a in curve) for curve in m.get("curves", ())),
            )
            for m in data["methods"]
        ]
        return cls(tuple(trials), data.get("level", 0.95), data.get("unit", "share"))

    @property
    def score(self) -> str:
        """Returns the name of the score: accuracy, or the unit's name."""
        return "accuracy" if self.unit == "share" else self.unit

    def table(self) -> list[ComparisonRow]:
        """Computes the final score of each method, and its difference to the first: paired seed by seed where both have
        the same seeds, Welch's otherwise. Intervals hold one at a time; with many methods, some will err."""
        first, *others = self.methods
        rows = [ComparisonRow(first.name, t_interval(first.final, self.level), float(iqm(first.final)))]
        for trials in others:
            paired = set(trials.seeds) == set(first.seeds)
            if paired:
                of_seed = dict(zip(first.seeds, first.final, strict=True))
                difference = paired_difference(trials.final, [of_seed[s] for s in trials.seeds], self.level)
            else:
                difference = welch_difference(trials.final, first.final, self.level)
            rows.append(
                ComparisonRow(
                    name=trials.name,
                    final=t_interval(trials.final, self.level),
                    iqm=float(iqm(trials.final)),
                    difference=difference,
                    improvement=probability_of_improvement(trials.final, first.final, self.level),
                    paired=paired,
                )
            )
        return rows
