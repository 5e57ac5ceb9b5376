"""Off-policy evaluation of slates: episodes are slates, decisions their positions."""

from __future__ import annotations

import numpy as np

from polopt.metrics.logged import LoggedDecisions
from polopt.metrics.off_policy import OffPolicyEstimator
from polopt.metrics.weighted import WeightedTerms


class IndependentImportanceSampling(OffPolicyEstimator):
    """mean_i sum_l gamma^l rho_l r_l, with rho_l = pi(a_l | x) / b(a_l | x) the ratio of position l alone: the
    probabilities of a row are those of its item at its position, over all slates of the context x.

    Unbiased where the reward of a position depends on its own item alone, whatever else the slate shows, with far less
    variance than the ratio of whole slates. self_normalised: each position's weights are divided by their mean.

    Source: Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay and Wen 2018, "Offline Evaluation of Ranking Policies with
    Click Models", arXiv 1804.10488.
    """

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        discount = self.gamma ** np.arange(table.reward.shape[1])
        log_ratio = np.where(table.mask, table.target_logp - table.behaviour_logp, 0.0)
        return WeightedTerms(self.limit(log_ratio), discount * table.reward, self.self_normalised, log_ratio)


class PseudoInverse(OffPolicyEstimator):
    """mean_i (1 + sum_l (rho_l - 1)) G_i, with G = sum_l gamma^l r_l the slate's whole reward and rho_l as in
    `IndependentImportanceSampling`: the pseudo-inverse estimator where the behaviour policy draws the positions
    independently of each other, given the context.

    Unbiased where the expected reward of a slate is a sum of terms of its positions, which are not observed. The weight
    may be below 0. self_normalised: each position's weights are divided by their mean.

    Source: Swaminathan, Krishnamurthy, Agarwal, Dudik, Langford, Jose and Zitouni 2017, "Off-policy Evaluation for
    Slate Recommendation", arXiv 1605.04812; the form for independent positions: Vlassis, Chandrashekar, Gil and Kallus
    2021, "Control Variates for Slate Off-Policy Evaluation", arXiv 2106.07914.
    """

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        log_ratio = np.where(table.mask, table.target_logp - table.behaviour_logp, -np.inf)
        gain = table.returns(self.gamma)[:, None]
        columns = np.concatenate([np.zeros((len(table), 1)), self.limit(log_ratio)], 1)
        values = np.concatenate([gain * (1.0 - table.lengths[:, None]), np.where(table.mask, gain, 0.0)], 1)
        return WeightedTerms(columns, values, self.self_normalised, np.where(table.mask, log_ratio, 0.0))
