"""The distribution of a policy's returns, estimated from another policy's log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polopt.metrics.intervals import Interval
from polopt.metrics.logged import LoggedDecisions, Numbers
from polopt.metrics.metric import LoggedMetric, Measured
from polopt.metrics.weight_limits import WeightLimit
from polopt.metrics.weighted import WeightedTerms, weight_cautions


class ReturnDistribution(LoggedMetric):
    """Mean, variance, quantiles and conditional values at risk of the target policy's return G, from its distribution

        F(x) = sum_i w_i 1(G_i <= x) / sum_i w_i,    w_i = prod_t pi(a_t | s_t) / b(a_t | s_t),

    quantile(p) = min{x : F(x) >= p} and cvar(p) = 1/p int_0^p quantile(u) du, the mean of the worst share p.

    with G = sum_t gamma^t r_t.

    gamma: discount. at: the shares p. self_normalised: False divides by n, cuts F at 1, and gives what is left below 1
    to the largest return. level, resamples, seed: of the percentile bootstrap over episodes. limit: of the weights.

    Consistent where the behaviour policy takes every action that the target policy takes. A quantile's interval is
    unreliable where few episodes of weight lie beyond it.

    Raises:
        ValueError: a share that is not in (0, 1].

    Source: Chandak, Niekum, Castro da Silva, Learned-Miller, Brunskill and Thomas 2021, "Universal Off-Policy
    Evaluation", arXiv 2104.12820.
    """

    gamma: float = 1.0
    at: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)
    self_normalised: bool = True
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0
    limit: WeightLimit = WeightLimit()

    def setup(self) -> None:
        wrong = [p for p in self.at if not 0 < p <= 1]
        if wrong or not len(self.at):
            raise ValueError(f"ReturnDistribution: at must be shares in (0, 1], found {wrong or 'none'}")
        if not 0 <= self.gamma <= 1 or not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                f"ReturnDistribution: gamma must be in [0, 1], level in (0, 1) and resamples >= 1, found {self.gamma}, "
                f"{self.level} and {self.resamples}"
            )

    def measure(self, table: LoggedDecisions) -> Measured:
        gain, log_weight = table.returns(self.gamma), self.limit(table.log_weights())[:, -1:]
        terms = WeightedTerms(log_weight, gain[:, None], self.self_normalised, table.log_weights())
        order = np.lexsort((terms.weight[:, 0], gain))
        gain, weight = gain[order], terms.weight[order, 0]
        n = len(gain)
        rows = np.random.default_rng(self.seed).integers(n, size=(self.resamples, n))
        count = np.stack([np.bincount(row, minlength=n) for row in rows])
        drawn = self._statistics(gain, weight * count)
        found = self._statistics(gain, weight[None])[0]
        tail = (1 - self.level) / 2
        ends = np.quantile(drawn, [tail, 1 - tail], axis=0)
        names = ["mean", "variance", *(f"quantile {p:g}" for p in self.at), *(f"cvar {p:g}" for p in self.at)]
        intervals = {
            name: Interval(float(x), float(low), float(high), self.level, n)
            for name, x, low, high in zip(names, found, *ends, strict=True)
        }
        values = {name: interval.estimate for name, interval in intervals.items()}
        values |= {"episodes": float(n), **terms.summary()}
        kept = {"return": gain, "weight": weight, "cdf": self.distribution(weight[None])[0]}
        return Measured(values, intervals, kept, tuple(weight_cautions(terms)))

    def distribution(self, weight: Numbers) -> Numbers:
        """Returns F at each episode's return, [R, n]. weight: [R, n] in the order of the returns."""
        total = np.cumsum(weight, 1)
        whole = total[:, -1:] if self.self_normalised else np.full((len(weight), 1), float(weight.shape[1]))
        found = np.minimum(np.divide(total, whole, out=np.ones_like(total), where=whole > 0), 1.0)
        found[:, -1] = 1.0
        return found

    def _statistics(self, gain: Numbers, weight: Numbers) -> Numbers:
        """Returns mean, variance, quantiles and conditional values at risk, [R, 2 + 2 P]. gain: [n], ascending."""
        at, F = np.asarray(self.at, float), self.distribution(weight)
        mass = np.diff(F, axis=1, prepend=0.0)
        mean = mass @ gain
        variance = np.maximum(mass @ gain**2 - mean**2, 0.0)
        # The last place in which F is below p; rounding of sums must not move a quantile.
        place = (F[:, None, :] < at[:, None] - 1e-12).sum(2)
        below = np.minimum(F[:, None, :], at[:, None])
        risk = (np.diff(below, axis=2, prepend=0.0) @ gain) / at
        return np.concatenate([mean[:, None], variance[:, None], gain[place], risk], 1)
