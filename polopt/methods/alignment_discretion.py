"""Alignment discretion: an audit of annotators against the principles that they are to apply."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, PrinciplePreferences, discretion_discrepancy, priorities
from polopt.metrics.discretion import COMPARISON_ROWS, Priorities, consensus, wins

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="AI Alignment at Your Discretion",
        authors="Buyl, Maarten and Khalaf, Hadi and Mayrink Verdun, Claudio and Monteiro Paes, Lucas and Vieira "
        "Machado, Caio C. and du Pin Calmon, Flavio",
        year=2025,
        arxiv="2502.10441",
    ),
    changes="Measures how often annotators go against principles that agree, and which principle they prefer where two "
    "conflict.",
    room="metrics",
    tier="proven",
)
def alignment_discretion(
    *, level: float = 0.95, resamples: int = 1000, priority_resamples: int = 100, seed: int = 0
) -> DiscretionAudit:
    """p_i is a principle's preference in a comparison, 1, -1 or none, and a an annotator's. The case is one of
    consensus, s, if some principle has a preference and all that have one share s; of conflict between i and j if p_i =
    -p_j; of indifference if no principle has one. Of the cases that the annotator labels, n_ij of them conflicts
    between i and j, the arbitrariness DA, the supremacy PS, the priorities w and the discrepancy DD of two annotators
    are

        DA(a) = mean_{consensus} 1[a = -s],    PS_ij(a) = mean_{p_i = -p_j} 1[a = p_i]
        w(a) = argmax_w sum_{i != j} n_ij PS_ij(a) log sigmoid(w_i - w_j)
        DD(a, b) = (1 - tau_b) / 2

    where tau_b is Kendall's, of the orders by w(a) and by w(b).

    level: of the intervals.
    resamples: bootstrap draws of comparisons for the shares.
    priority_resamples: those for orders of principles.
    seed: of the draws.

    A principle that always wins has an infinite weight: orders are by tiers, then by weight (`metrics.Priorities`).
    The authors' program makes such principles infinite one by one; where several of them win together over the others,
    its descent does not converge, and here they are a tier with weights of their own. A principle without conflicts
    has no rank, and is left out of discrepancies. Preferences of a judge that saw both orders of two answers are
    combined by `metrics.both_orders`; the program keeps the first order alone, where the paper has both.
    """
    return DiscretionAudit(level=level, resamples=resamples, priority_resamples=priority_resamples, seed=seed)


class DiscretionAudit(Metric):
    """The audit of `alignment-discretion`; settings as those of the method.

    Values: `consensus`, `conflict`, `indifference`; `arbitrariness of A` for each annotator; `discrepancy of A and B`
    for each two; `rank of P for A`, the place of each principle, 1 first. Rows: `consensus` [N], NaN in other cases,
    and `conflict` [N]. `supremacy(data)` and `orders(data)` return the tables.
    """

    level: float = 0.95
    resamples: int = 1000
    priority_resamples: int = 100
    seed: int = 0

    rows = COMPARISON_ROWS

    def setup(self) -> None:
        if not 0 < self.level < 1 or min(self.resamples, self.priority_resamples) < 1:
            raise ValueError(
                "methods.alignment_discretion.DiscretionAudit: need level in (0, 1), resamples and priority_resamples "
                f">= 1, found {self.level}, {self.resamples} and {self.priority_resamples}"
            )

    def supremacy(self, data: PrinciplePreferences) -> tuple[Numbers, Numbers]:
        """Returns PS [M, K, K], NaN where two principles never conflict, and the numbers of conflicts [M, K, K]."""
        counts = np.stack([wins(data.principles, a) for a in data.annotators.T])
        total = counts + counts.transpose(0, 2, 1)
        return np.where(total > 0, counts / np.maximum(total, 1), np.nan), total

    def orders(self, data: PrinciplePreferences) -> list[Priorities]:
        """Returns the priorities of each annotator."""
        return [priorities(wins(data.principles, a)) for a in data.annotators.T]

    def measure(self, data: PrinciplePreferences) -> Measured:
        agreed, conflict, indifferent = consensus(data.principles)
        cases = {"consensus": ~np.isnan(agreed), "conflict": conflict, "indifference": indifferent}
        draw = np.random.default_rng(self.seed)
        times = draw.multinomial(len(data), np.full(len(data), 1 / len(data)), size=self.resamples).astype(float)
        everywhere = np.ones(len(data))
        values, intervals = dict[str, float](), dict[str, Interval]()
        for name, found in cases.items():
            intervals[name] = self._share(found.astype(float), everywhere, times)
        for name, label in zip(data.annotator_names, data.annotators.T, strict=True):
            asked = ~np.isnan(agreed) & ~np.isnan(label)
            if asked.any():
                against = (agreed * label < 0).astype(float)
                intervals[f"arbitrariness of {name}"] = self._share(against, asked.astype(float), times)
        orders = self.orders(data)
        intervals |= self._discrepancies(data, orders, times[: self.priority_resamples])
        values = {name: interval.estimate for name, interval in intervals.items()}
        for name, order in zip(data.annotator_names, orders, strict=True):
            ranked = zip(data.principle_names, order.rank, strict=True)
            values |= {f"rank of {p} for {name}": float(rank) for p, rank in ranked if not np.isnan(rank)}
        return Measured(values, intervals, {"consensus": agreed, "conflict": conflict}, self._cautions(data, orders))

    def _share(self, x: Numbers, among: Numbers, times: Numbers) -> Interval:
        """Returns the mean of x among some rows, with its bootstrap interval."""
        total = times @ among
        drawn = (times @ (x * among))[total > 0] / total[total > 0]
        return self._interval(float((x * among).sum() / among.sum()), drawn, int(among.sum()))

    def _interval(self, estimate: float, drawn: Numbers, n: int) -> Interval:
        if not len(drawn):
            return Interval(estimate, -np.inf, np.inf, self.level, n)
        low, high = np.quantile(drawn, [(1 - self.level) / 2, (1 + self.level) / 2])
        return Interval(estimate, float(low), float(high), self.level, n)

    def _discrepancies(
        self, data: PrinciplePreferences, orders: list[Priorities], times: Numbers
    ) -> dict[str, Interval]:
        if data.annotators.shape[1] < 2:
            return {}
        drawn = [[priorities(wins(data.principles, a, t)).rank for a in data.annotators.T] for t in times]
        found = {}
        for i, j in itertools.combinations(range(len(orders)), 2):
            estimate = discretion_discrepancy(orders[i].rank, orders[j].rank)
            if np.isnan(estimate):
                continue
            samples = np.array([discretion_discrepancy(ranks[i], ranks[j]) for ranks in drawn])
            name = f"discrepancy of {data.annotator_names[i]} and {data.annotator_names[j]}"
            found[name] = self._interval(estimate, samples[~np.isnan(samples)], len(data))
        return found

    def _cautions(self, data: PrinciplePreferences, orders: list[Priorities]) -> tuple[str, ...]:
        found = []
        for name, order in zip(data.annotator_names, orders, strict=True):
            absent = [p for p, rank in zip(data.principle_names, order.rank, strict=True) if np.isnan(rank)]
            if absent:
                found.append(f"{name} labels no conflict of {', '.join(absent)[:200]}, which have no rank")
            if not order.connected:
                found.append(
                    f"some principles are not compared by the conflicts that {name} labels: their order is open"
                )
        return tuple(found)
