"""Importance sampling with the ratio of discounted visits, one for each state and action whatever the step."""

from __future__ import annotations

import numpy as np

from polopt.metrics.action_values import TabularValues
from polopt.metrics.logged import LoggedDecisions
from polopt.metrics.metric import Measured
from polopt.metrics.off_policy import OffPolicyEstimator, measured_refitted
from polopt.metrics.value_table import solved
from polopt.metrics.weighted import WeightedTerms


class StationaryImportanceSampling(OffPolicyEstimator):
    """1/n sum_i sum_t zeta(s_t, a_t) r_t, with zeta(s, a) the ratio of the target policy's discounted visits to the
    behaviour policy's visits, from the log as the solution of

        sum_i sum_t zeta(s_t, a_t) [f(s_t, a_t) - gamma f(s_{t+1}, pi)] = sum_i f(s_i0, pi)    for every f(s, a),

    with f(s, pi) = sum_a pi(a | s) f(s, a), and 0 after an episode's end. There is one ratio for all steps, neither
    products of an episode's ratios nor a table by step, so that the variance does not grow with the horizon. Consistent
    where the behaviour policy takes every action that the target policy takes and a state holds all that the future
    depends on. In a table it is the dual of fitted Q evaluation, and the same number.

    endless: the log cuts episodes that would go on: the last decision of each is left out, and the value is that
    without a horizon. limit: of zeta. self_normalised: refused. The interval is the percentile bootstrap over episodes,
    with the ratios fitted anew each of `resamples` times.

    Source: Nachum, Chow, Dai and Li 2019, "DualDICE: Behavior-Agnostic Estimation of Discounted Stationary Distribution
    Corrections", arXiv 1906.04733; Uehara, Huang and Jiang 2020, arXiv 1910.12809, as minimax weight learning.
    """

    resamples: int = 200
    endless: bool = False

    def setup(self) -> None:
        super().setup()
        if self.self_normalised:
            raise ValueError("StationaryImportanceSampling: its weights cannot be self-normalised; leave it false")

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"state", "action"})

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        _, found = TabularValues(endless=self.endless).table(table, self.gamma)
        ratio = solved(found.system().T.tocsc(), found.policy.T @ found.starts, self.gamma)
        weights, rewards = np.zeros((2, *table.reward.shape))
        # The exact solution is 0 or more, and less is rounding.
        weights[table.mask] = np.maximum(ratio, 0.0)[found.pair]
        rewards[table.mask] = np.where(found.used, table.reward[table.mask], 0.0)
        # An episode that has ended keeps its last weight.
        last = np.minimum(np.arange(table.reward.shape[1]), table.lengths[:, None] - 1)
        with np.errstate(divide="ignore"):
            log_weight = np.log(np.take_along_axis(weights, last, 1))
        return WeightedTerms(self.limit(log_weight), rewards, False, table.log_weights())

    def measure(self, table: LoggedDecisions) -> Measured:
        return measured_refitted(self, table)
