"""SharpeRatio@k: the return and the risk of taking the policies that an off-policy estimator ranks first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, rank_correlation, t_interval
from polopt.metrics.estimated_policies import ESTIMATE_ROWS, EstimatedPolicies

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="Towards Assessing and Benchmarking Risk-Return Tradeoff of Off-Policy Evaluation",
        authors="Kiyohara, Haruka and Kishimoto, Ren and Kawakami, Kosuke and Kobayashi, Ken and Nakata, Kazuhide and "
        "Saito, Yuta",
        year=2023,
        arxiv="2311.18207",
    ),
    changes="Scores an off-policy estimator by the policies that it ranks first: how much better the best of them is "
    "than the behaviour policy, in units of how much they differ.",
    room="metrics",
    tier="faithful",
)
def sharpe_at_k(
    *, k: Sequence[int] = (2, 3, 5), threshold: float | None = None, ddof: int = 0, level: float = 0.95
) -> SharpeRatio:
    """Of the k candidate policies with the highest estimates, the portfolio, with true values J_1, ..., J_k:

        S_k = (max_i J_i - J_b) / sigma_k,    sigma_k = sqrt(sum_i (J_i - mean(J))^2 / (k - ddof))

    SharpeRatio@k is S_k, with J_b the value of the behaviour policy; best@k is max J, worst@k min J and std@k sigma_k.

    Best and behaviour policy are compared as in an online test of the portfolio; std@k is its risk. The behaviour
    policy is a candidate too, so that a cautious estimator can put it first. Where all of the portfolio have one value
    the ratio is 0 if that is the behaviour policy's, and not a number otherwise, as for k = 1. It is unchanged by a
    change of origin and unit of the values.

    Beside it: `RMSE` of the estimates, the rank correlation (Spearman's), `regret@k`, the best of all less the best of
    the portfolio, and, with a threshold, `violations@k`, the share of the portfolio that is below it. All of each
    estimator; means over logs, with Student's intervals where there are several.

    k: sizes of the portfolio; those beyond the number of candidates are refused.
    threshold: the value that a policy must have to be safe.
    ddof: 0 as in the paper; 1 as in its published code, which also cuts negative numerators off at 0.
    level: of the intervals.
    """
    return SharpeRatio(k=tuple(k), threshold=threshold, ddof=ddof, level=level)


class SharpeRatio(Metric):
    """Risk and return of the policies that estimators rank first; settings as those of the method `sharpe-at-k`.

    Values are named `ESTIMATOR, SharpeRatio@k` and so on; rows: each ratio by log.
    """

    k: tuple[int, ...] = (2, 3, 5)
    threshold: float | None = None
    ddof: int = 0
    level: float = 0.95

    rows = ESTIMATE_ROWS

    def setup(self) -> None:
        where = "methods.sharpe_at_k.SharpeRatio"
        if not self.k or min(self.k) < 1:
            raise ValueError(f"{where}: k must be sizes from 1 on, found {self.k}")
        if self.ddof not in (0, 1):
            raise ValueError(f"{where}: ddof must be 0 or 1, found {self.ddof}")
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")

    def measure(self, data: EstimatedPolicies) -> Measured:
        """Measures every estimator.

        Raises:
            MetricError: a log with fewer candidates than the largest k.
        """
        each: dict[str, list[float]] = {}
        for (estimator, log), candidates in data.parts().items():
            if len(candidates) < max(self.k):
                raise MetricError(
                    f"sharpe-at-k: k = {max(self.k)} needs as many candidates, and {estimator} has {len(candidates)} "
                    f"in log {log}; set k"
                )
            base = float(candidates.value[candidates.behaviour][0])
            found = self.portfolios(candidates.ranked(), base)
            error = candidates.estimate - candidates.value
            found |= {"RMSE": float(np.sqrt((error**2).mean()))}
            found |= {"rank correlation": rank_correlation(candidates.estimate, candidates.value)}
            for name, value in found.items():
                each.setdefault(f"{estimator}, {name}", []).append(value)
        arrays = {name: np.array(values) for name, values in each.items()}
        intervals: dict[str, Interval] = {
            name: t_interval(x, self.level) for name, x in arrays.items() if len(x) > 1 and np.isfinite(x).all()
        }
        ratios = {name: x for name, x in arrays.items() if "SharpeRatio" in name}
        undefined = sorted(name for name, x in ratios.items() if np.isnan(x).any())
        cautions = (
            [f"{', '.join(undefined)}: policies of one value, so that the ratio has no unit"] if undefined else []
        )
        return Measured({name: float(x.mean()) for name, x in arrays.items()}, intervals, ratios, tuple(cautions))

    def portfolios(self, ranked: Numbers, base: float) -> dict[str, float]:
        """Returns the numbers of every k, from the true values [n] in the order of the estimates."""
        found = {}
        for k in self.k:
            top = ranked[:k]
            spread = float(top.std(ddof=self.ddof)) if k > self.ddof else 0.0
            gain = float(top.max()) - base
            found[f"SharpeRatio@{k}"] = gain / spread if spread > 0 else 0.0 if gain == 0 else np.nan
            found |= {f"best@{k}": float(top.max()), f"worst@{k}": float(top.min()), f"mean@{k}": float(top.mean())}
            found |= {f"std@{k}": spread, f"regret@{k}": float(ranked.max() - top.max())}
            if self.threshold is not None:
                found[f"violations@{k}"] = float((top < self.threshold).mean())
        return found
