"""Marginalised importance sampling: one ratio for each state in place of a product over an episode."""

from __future__ import annotations

import numpy as np

from polopt.metrics.logged import LoggedDecisions, Numbers
from polopt.metrics.metric import Measured
from polopt.metrics.off_policy import OffPolicyEstimator, measured_refitted
from polopt.metrics.weighted import WeightedTerms


class MarginalImportanceSampling(OffPolicyEstimator):
    """1/n sum_i sum_t gamma^t m_t(s_t) rho_t r_t, with rho_t = pi(a_t | s_t) / b(a_t | s_t) and m_t(s) the ratio of the
    probabilities of state s at step t under the target and the behaviour policy, from the log by

        m_0 = 1,    m_{t+1}(s') = mean over the episodes in s' at step t + 1 of  m_t(s_t) rho_t

    so that the variance need not grow with the product of an episode's ratios. Consistent where the behaviour policy
    takes every action that the target policy takes and a state holds all that the future depends on; the ratios are
    estimated from the episodes that they weigh.

    The interval is the percentile bootstrap over episodes, with the ratios fitted anew each of `resamples` times.
    limit: of m_t(s_t) rho_t.

    Source: Xie, Ma and Wang 2019, "Towards Optimal Off-Policy Evaluation for Reinforcement Learning with Marginalized
    Importance Sampling", arXiv 1906.03393.
    """

    resamples: int = 200

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"state"})

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        discount = self.gamma ** np.arange(table.reward.shape[1])
        weights = self.limit(marginal_log_weights(table))
        return WeightedTerms(weights, discount * table.reward, self.self_normalised, table.log_weights())

    def measure(self, table: LoggedDecisions) -> Measured:
        return measured_refitted(self, table)


def marginal_log_weights(table: LoggedDecisions) -> Numbers:
    """Returns log m_t(s_t) rho_t, [B, T], see `MarginalImportanceSampling`; after an episode's end its last one."""
    assert table.state is not None
    with np.errstate(divide="ignore"):
        ratio = np.exp(np.where(table.mask, table.target_logp - table.behaviour_logp, 0.0))
        found = np.zeros_like(ratio)
        weight = ratio[:, 0]
        found[:, 0] = np.log(weight)
        for t in range(1, ratio.shape[1]):
            going = table.mask[:, t]
            kinds, place = np.unique(table.state[going, t], return_inverse=True)
            marginal = np.bincount(place, weight[going], len(kinds)) / np.bincount(place, minlength=len(kinds))
            weight = weight.copy()
            weight[going] = marginal[place] * ratio[going, t]
            found[:, t] = np.log(weight)
    return found
