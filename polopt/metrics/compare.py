"""Comparison of methods over seeds: differences with intervals, and the probability of improvement on a new seed."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval, t_interval
from polopt.metrics.letters import compact_letters
from polopt.metrics.sequential import anytime_interval, anytime_p


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


def mean_difference_p(x: ArrayLike, y: ArrayLike, *, paired: bool) -> float:
    """Returns the two-sided p value of equal means by the t test whose interval is `paired_difference`, or
    `welch_difference`; 1 with one value on a side. Without any spread it is 1 for equal means, and 0 for others.

    Raises:
        ValueError: as the interval's function.
    """
    from scipy import stats

    interval = (paired_difference if paired else welch_difference)(x, y)
    if not math.isfinite(interval.low):
        return 1.0
    if interval.low == interval.high:
        return float(interval.estimate == 0)
    return float((stats.ttest_rel(x, y) if paired else stats.ttest_ind(x, y, equal_var=False)).pvalue)


def holm(p: Sequence[float], level: float = 0.05) -> list[bool]:
    """Tests several hypotheses so that any true one is rejected with probability at most `level`.

    The k-th smallest of n p values is rejected if it and all smaller ones are at most level / (n - k + 1).

    Source: Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    rejected, n = [False] * len(p), len(p)
    for k, place in enumerate(sorted(range(n), key=lambda i: p[i])):
        if p[place] > level / (n - k):
            break
        rejected[place] = True
    return rejected


def power(difference: float, deviation: float, seeds: int, level: float = 0.95) -> float:
    """Returns the probability that `paired_difference` over so many seeds leaves out 0, if the true mean difference is
    `difference` and the differences of the seeds are normal with this standard deviation: two tails of the noncentral
    t.

    Raises:
        ValueError: a deviation that is not > 0.
    """
    if not deviation > 0:
        raise ValueError(f"power: deviation must be > 0, found {deviation}")
    if seeds < 2:
        return 0.0
    from scipy.special import stdtrit
    from scipy.stats import nct

    bound, shift = float(stdtrit(seeds - 1, (1 + level) / 2)), difference / deviation * math.sqrt(seeds)
    # The other tail mirrored: scipy's cdf is not a number far out.
    return float(nct.sf(bound, seeds - 1, shift) + nct.sf(bound, seeds - 1, -shift))


def seeds_needed(difference: float, deviation: float, probability: float = 0.8, level: float = 0.95) -> int:
    """Returns the least number of seeds with which a difference is found with this probability, see `power`.

    Raises:
        ValueError: no difference, a deviation that is not > 0, a probability outside (0, 1), or over 100,000 seeds.
    """
    if difference == 0 or not 0 < probability < 1:
        raise ValueError(
            f"seeds_needed: needs a difference and a probability in (0, 1), found {difference}, {probability}"
        )
    few, many = 1, 2
    while power(difference, deviation, many, level) < probability:
        few, many = many, 2 * many
        if many > 200_000:
            raise ValueError(
                f"seeds_needed: over 100,000 seeds for a difference of {difference / deviation:.2g} deviations"
            )
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if power(difference, deviation, middle, level) < probability else (few, middle)
    return many


def detectable_difference(seeds: int, probability: float = 0.8, level: float = 0.95) -> float:
    """Returns the difference, in standard deviations of the seeds' differences, that so many seeds find with this
    probability, see `power`; infinite for one seed.

    Raises:
        ValueError: a probability outside (1 - level, 1).
    """
    if not 1 - level < probability < 1:
        raise ValueError(f"detectable_difference: probability must be in ({1 - level:g}, 1), found {probability}")
    if seeds < 2:
        return math.inf
    from scipy.optimize import brentq

    most = 1.0  # found by doubling: the noncentral t is not computed far beyond what is needed
    while power(most, 1.0, seeds, level) < probability:
        most *= 2
    return float(brentq(lambda d: power(d, 1.0, seeds, level) - probability, 0.0, most, xtol=1e-6))


def improvement(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(X > Y) + P(X = Y) / 2 over all pairs, [..., n] and [..., m] -> [...]: Mann-Whitney's U / (n m)."""
    return (np.sign(x[..., :, None] - y[..., None, :]).mean((-2, -1)) + 1) / 2


def probability_of_improvement(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> Interval:
    """Probability theta that a new seed of x beats a new seed of y, ties counted half; 0.5 means no difference.

    The ends solve |estimate - theta| = z sqrt(V(theta)), with k = (n + m) / 2 - 1 and

        V(theta) = theta (1 - theta) [1 + k (1 - theta) / (2 - theta) + k theta / (1 + theta)] / (n m).

    An interval that would leave out 0.5 is widened up to it where the exact permutation test (`permutation_p`) does not
    reject equal distributions: with three seeds a side no outcome does at level 0.95, with four only the most extreme.
    It is computed as for independent samples: where seeds are paired and correlated it is wider than need be. A
    difference in spread alone leaves theta at 0.5, but is no equal distribution, and may be rejected too often.

    Raises:
        ValueError: no values, values that are not finite, a level outside (0, 1).

    Source: method 5 of Newcombe 2006, "Confidence intervals for an effect size measure based on the Mann-Whitney
    statistic. Part 2", Statistics in Medicine 25; the estimate as in Agarwal et al. 2021, arXiv 2108.13264.
    """
    a, b = np.asarray(x, float).ravel(), np.asarray(y, float).ravel()
    t_interval(a, level), t_interval(b, level)  # refuses what neither can be computed of
    estimate = float(improvement(a, b))
    low, high = _score_end(estimate, a.size, b.size, level, -1), _score_end(estimate, a.size, b.size, level, 1)
    if not low <= 0.5 <= high and permutation_p(a, b) > 1 - level:
        low, high = min(low, 0.5), max(high, 0.5)
    return Interval(estimate, low, high, level, min(a.size, b.size))


def _score_end(estimate: float, n: int, m: int, level: float, side: int) -> float:
    """Returns the lower (side -1) or the upper end (1) of `probability_of_improvement`."""
    from scipy.optimize import brentq
    from scipy.special import ndtri

    k, z = (n + m) / 2 - 1, float(ndtri((1 + level) / 2))

    def excess(theta: float) -> float:
        variance = theta * (1 - theta) * (1 + k * (1 - theta) / (2 - theta) + k * theta / (1 + theta)) / (n * m)
        return side * (theta - estimate) - z * math.sqrt(variance)

    outer = float(side > 0)
    if estimate == outer:
        return outer
    # A little away from the estimate: at an estimate of 0 or 1 the variance there is 0, and so is the excess.
    return float(brentq(excess, estimate + side * 1e-9, outer, xtol=1e-12))


def permutation_p(x: ArrayLike, y: ArrayLike) -> float:
    """Returns the two-sided p value of equal distributions, exact, ties included: the share of all ways to split the
    pooled values into samples of these sizes whose `improvement` is at least as far from 1/2 as that of x and y.
    """
    from scipy.stats import rankdata

    a, b = np.asarray(x, float).ravel(), np.asarray(y, float).ravel()
    ranks = np.rint(2 * rankdata(np.concatenate([a, b]))).astype(int)  # twice the mid-ranks are whole numbers
    # ways[k, s]: subsets of k values whose doubled ranks add up to s.
    ways = np.zeros((a.size + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    sums, middle = np.arange(ways.shape[1]), a.size * (a.size + b.size + 1)
    far = np.abs(sums - middle) >= abs(int(ranks[: a.size].sum()) - middle)
    return float(ways[-1, far].sum() / ways[-1].sum())


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

    def band(self, interval_of: Callable[[Sequence[float]], Interval] = t_interval) -> list[tuple[float, Interval]]:
        """Mean over seeds with its interval at every step that all seeds have reached."""
        curves = [dict(c) for c in self.curves]
        steps = sorted(set.intersection(*map(set, curves))) if curves else []
        return [(s, interval_of([c[s] for c in curves])) for s in steps]


@dataclasses.dataclass(frozen=True)
class ComparisonRow:
    """One method in the table; all but `final` and `iqm` are against the first method, and None for itself.

    p: of no difference in the mean. significant: whether it is rejected after Holm's correction for the number of
    methods in the table, so that with no difference anywhere a table has any at most as often as the level leaves.
    """

    name: str
    final: Interval
    iqm: float
    difference: Interval | None = None
    improvement: Interval | None = None
    paired: bool | None = None
    p: float | None = None
    significant: bool | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Several methods on the same tasks, compared with the first.

    unit: of the scores: "share" of an accuracy, in [0, 1], or another's own name, as "return".
    anytime: whether intervals and `significant` hold however often one looks while seeds are added, in the order of the
        seeds (`sequential.anytime_interval`); False: at a number of seeds that was decided beforehand.

    Raises:
        ValueError: no method, or two with one name.
    """

    methods: Sequence[MethodRuns]
    level: float = 0.95
    unit: str = "share"
    anytime: bool = False

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
        return cls(tuple(trials), data.get("level", 0.95), data.get("unit", "share"), data.get("anytime", False))

    @property
    def score(self) -> str:
        """Returns the name of the score: accuracy, or the unit's name."""
        return "accuracy" if self.unit == "share" else self.unit

    def table(self) -> list[ComparisonRow]:
        """Computes the final score of each method, and its difference to the first: paired seed by seed where both have
        the same seeds, Welch's otherwise. Intervals hold one at a time; `significant` holds for the whole table.
        Intervals of shares end at 0 and 1, those of their differences at -1 and 1. The probability of improvement has
        no interval for any time, and is left out there.

        Raises:
            ValueError: for any time, methods with different seeds.
        """
        first, *others = self.methods
        rows = [ComparisonRow(first.name, self.interval(first.final), float(iqm(first.final)))]
        for trials in others:
            difference, p, paired = self._difference(first, trials)
            rows.append(
                ComparisonRow(
                    name=trials.name,
                    final=self.interval(trials.final),
                    iqm=float(iqm(trials.final)),
                    difference=self._bounded(difference, -1.0),
                    improvement=None
                    if self.anytime
                    else probability_of_improvement(trials.final, first.final, self.level),
                    paired=paired,
                    p=p,
                )
            )
        found = holm([row.p for row in rows if row.p is not None], 1 - self.level)
        return rows[:1] + [dataclasses.replace(row, significant=s) for row, s in zip(rows[1:], found, strict=True)]

    def letters(self) -> dict[str, str]:
        """Returns the letters of each method: two share one if, and only if, their difference is not significant after
        Holm's correction for all pairs of methods, and not for those with the first one alone as in `table`.

        Raises:
            ValueError: as `table`.
        """
        order = sorted(self.methods, key=lambda method: (-sum(method.final) / len(method.final), method.name))
        pairs = list(itertools.combinations(range(len(order)), 2))
        found = holm([self._difference(order[i], order[j])[1] for i, j in pairs], 1 - self.level)
        apart = [pair for pair, yes in zip(pairs, found, strict=True) if yes]
        return {m.name: text for m, text in zip(order, compact_letters(len(order), apart), strict=True)}

    def interval(self, values: Sequence[float]) -> Interval:
        """Computes the mean score of seeds with the interval that the table gives it, for any time or not."""
        return self._bounded((anytime_interval if self.anytime else t_interval)(values, self.level))

    def bands(self) -> dict[str, list[tuple[float, Interval]]]:
        """Computes each method's learning curve: the mean over seeds, with the table's interval, at every step that all
        of its seeds have reached. An interval holds at its step; for any time, at any number of seeds, but not at all
        steps at once.
        """
        return {runs.name: runs.band(self.interval) for runs in self.methods}

    def _difference(self, first: MethodRuns, trials: MethodRuns) -> tuple[Interval, float, bool]:
        """Returns the difference to the first method, the p value of none, and whether seeds are paired."""
        of_seed = dict(zip(first.seeds, first.final, strict=True))
        paired = set(trials.seeds) == set(of_seed)
        if self.anytime:
            if not paired:
                raise ValueError(
                    f"Comparison: intervals for any time need the same seeds of every method; {trials.name!r} has "
                    f"{sorted(trials.seeds)}, {first.name!r} {sorted(of_seed)}"
                )
            differences = [
                score - of_seed[seed] for seed, score in sorted(zip(trials.seeds, trials.final, strict=True))
            ]
            return anytime_interval(differences, self.level), anytime_p(differences), True
        base = [of_seed[seed] for seed in trials.seeds] if paired else list(first.final)
        interval = (paired_difference if paired else welch_difference)(trials.final, base, self.level)
        return interval, mean_difference_p(trials.final, base, paired=paired), paired

    def _bounded(self, interval: Interval, least: float = 0.0) -> Interval:
        """Cuts the interval of a share off at what a share can be; other units and one seed's are returned as given."""
        if self.unit != "share" or not math.isfinite(interval.low):
            return interval
        return dataclasses.replace(interval, low=max(interval.low, least), high=min(interval.high, 1.0))
