"""Metrics that contradict each other: all are kept, and how much they conflict is measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, kendall_tau
from polopt.metrics.several_metrics import (
    POLICY_METRIC_ROWS,
    Numbers,
    PolicyMetrics,
    hypervolume,
    pareto_front,
    regret_matrix,
    resampled_tau,
)
from polopt.names import nearest

# Operations of the exact volume beyond which it is left out.
MOST_SLICES = 200_000


@method(
    paper=Paper(
        title="Embracing Contradiction: Theoretical Inconsistency Will Not Impede the Road of Building Responsible AI "
        "Systems",
        authors="Dai, Gordon and Xiao, Yunze",
        year=2025,
        arxiv="2505.18139",
    ),
    changes="Keeps metrics that contradict each other as objectives of their own, and measures their conflicts, the "
    "front of the policies and the price of optimising one of them.",
    room="metrics",
    tier="reading",
)
def rai_inconsistency(
    *,
    metrics: Sequence[str] = (),
    lower: Sequence[str] = (),
    eps: float = 0.2,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> MetricConflicts:
    """Of N policies with metrics v_1, ..., v_M, the higher the better, each pair of metrics has a rank correlation over
    the policies, and conflicts where it is below 0; the metrics are eps-consistent if

        max_ij (max_n v_nj - v_mj) / (max_n v_nj - min_n v_nj) <= eps,    m = argmax_n v_ni

    that is, if optimising any one of them costs at most that share of the range of any other. Beside them: the policies
    that no other one dominates (the front), the volume of the unit cube that they dominate, each metric mapped from its
    smallest to its largest value, and the front's policy that is nearest to the best value of every metric (the knee).

    metrics: those that are compared; all that every policy has if none. lower: those of which less is better.
    eps: the inconsistency that is accepted.
    level, resamples, seed: of the correlations' bootstrap over policies.

    The paper is a position: conflicting metrics stand for different values, describe a concept more fully and keep
    training from overfitting one of them, so that thresholds of acceptable inconsistency should be set. Every formula
    here is ours. Front, volume, knee and inconsistency are those of the given policies, without intervals: they are
    extremes, which a bootstrap does not cover, and noise in the metrics makes a front larger than the true one.
    Policies must be independent of each other for the correlations' intervals, which the steps of one run are not. No
    metric is weighed against another, and what is eps-consistent is not thereby good.
    """
    return MetricConflicts(
        metrics=tuple(metrics), lower=tuple(lower), eps=eps, level=level, resamples=resamples, seed=seed
    )


class MetricConflicts(Metric):
    """Conflicts of metrics; settings as those of the method `rai-inconsistency`.

    Values are `tau, A and B`, `conflicts`, `sure conflicts`, whose interval lies below 0, `front`, `hypervolume`,
    `inconsistency`, `consistent` and `regret of B, optimising A`; rows, by policy: `front` and `knee`, 1 for its own.
    """

    metrics: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    eps: float = 0.2
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    rows = POLICY_METRIC_ROWS

    def setup(self) -> None:
        where = "methods.rai_inconsistency.MetricConflicts"
        if not 0 <= self.eps <= 1 or not 0 < self.level < 1:
            raise ValueError(f"{where}: eps must be in [0, 1] and level in (0, 1), found {self.eps} and {self.level}")
        if self.resamples < 1:
            raise ValueError(f"{where}: resamples must be >= 1, found {self.resamples}")

    def measure(self, data: PolicyMetrics) -> Measured:
        """Measures a table of policies.

        Raises:
            MetricError: an unknown metric, one that not every policy has, or none that varies.
        """
        names, cautions = self._chosen(data)
        x = self.oriented(data, names)
        spread = x.max(0) - x.min(0)
        unit = (x - x.min(0)) / np.where(spread > 0, spread, 1.0)
        front = pareto_front(x)
        values, intervals = self._correlations(data, names, x)
        conflicts = [name for name, value in values.items() if value < 0]
        sure = [name for name in conflicts if name in intervals and intervals[name].high < 0]
        regret = regret_matrix(x)
        values |= {"conflicts": float(len(conflicts)), "sure conflicts": float(len(sure)), "front": float(front.sum())}
        if int(front.sum()) ** (len(names) - 1) <= MOST_SLICES:
            values["hypervolume"] = hypervolume(np.unique(unit[front], axis=0))
        else:
            cautions.append(
                f"the volume of {int(front.sum())} policies in {len(names)} metrics was left out; name fewer"
            )
        values |= {"inconsistency": float(regret.max()), "consistent": float(regret.max() <= self.eps)}
        for i, j in itertools.permutations(range(len(names)), 2):
            values[f"regret of {names[j]}, optimising {names[i]}"] = float(regret[i, j])
        distance = np.where(front, np.square(1 - unit).sum(1), np.inf)
        knee = distance == distance.min()
        cautions.append(f"the knee is {', '.join(sorted(data.policy[knee].tolist()))}")
        rows = {"front": front.astype(float), "knee": knee.astype(float)}
        return Measured(values, intervals, rows, tuple(cautions))

    def _chosen(self, data: PolicyMetrics) -> tuple[list[str], list[str]]:
        """Returns the metrics to compare, and cautions about those that are left out."""
        for name in (*self.metrics, *self.lower):
            if name not in data.values:
                raise MetricError(f"rai-inconsistency: there is no metric {name!r:.60}{nearest(name, data.values)}")
        partial = [name for name, x in data.values.items() if np.isnan(x).any()]
        if lacking := [name for name in self.metrics if name in partial]:
            raise MetricError(f"rai-inconsistency: not every policy has {lacking[0]!r:.60}; leave those rows out")
        names = sorted(set(self.metrics or data.values) - set(partial))
        constant = [name for name in names if np.ptp(data.values[name]) == 0]
        names = [name for name in names if name not in constant]
        if not names:
            raise MetricError("rai-inconsistency: no metric that all policies have varies; give two policies or more")
        found = []
        if not self.metrics and partial:
            found.append(f"not every policy has {', '.join(partial)}, which were left out")
        if constant:
            found.append(f"{', '.join(constant)}: equal for all policies, and left out")
        return names, found

    def oriented(self, data: PolicyMetrics, names: Sequence[str]) -> Numbers:
        """Returns the metrics with the higher the better, [N, M]."""
        return np.column_stack([-data.values[name] if name in self.lower else data.values[name] for name in names])

    def _correlations(
        self, data: PolicyMetrics, names: Sequence[str], x: Numbers
    ) -> tuple[dict[str, float], dict[str, Interval]]:
        """Returns the rank correlation of every pair, with the bootstrap's interval where there is one."""
        order = np.argsort(data.policy, kind="stable")
        ends = [(1 - self.level) / 2, (1 + self.level) / 2]
        values, intervals = {}, {}
        for i, j in itertools.combinations(range(len(names)), 2):
            name = f"tau, {names[i]} and {names[j]}"
            values[name] = kendall_tau(x[:, i], x[:, j])
            draws = resampled_tau(x[order, i], x[order, j], self.resamples, self.seed)
            if np.isfinite(draws).any() and len(x) > 2:
                low, high = np.nanquantile(draws, ends)
                intervals[name] = Interval(values[name], float(low), float(high), self.level, len(x))
        return values, intervals
