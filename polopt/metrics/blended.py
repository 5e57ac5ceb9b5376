"""Off-policy estimates that blend a model and importance sampling by their estimated errors."""

from __future__ import annotations

import dataclasses

import numpy as np

from polopt.metrics.logged import LoggedDecisions, Numbers
from polopt.metrics.metric import Measured
from polopt.metrics.off_policy import DoublyRobust, measured, with_bias
from polopt.metrics.weighted import WeightedTerms, resampled


class BlendedReturns(DoublyRobust):
    """sum_j x_j g_j, with g_j the doubly robust estimate whose first j decisions are corrected by importance sampling
    and whose rest is the model's,

        g_j = mean_i [sum_{t < j} gamma^t w_{0:t} (r_t - q_t) + sum_{t <= j} gamma^t w_{0:t-1} v_t],    j = 0..T,

    so that g_0 is the model's value of the first states and g_T the doubly robust estimate, and x on the simplex the
    minimum of x' (Omega + b b') x: Omega the covariance of the g_j, from the terms of the episodes, and b_j the
    distance of g_j to the interval of level `bias_level` around g_T, the percentile bootstrap of `bias_resamples`.

    self_normalised: True, each step's weights are divided by their mean.

    The interval is that of g_T, extended to contain the estimate: what is gained is the error of the estimate, not the
    width of the interval.

    Source: Thomas and Brunskill 2016, "Data-Efficient Off-Policy Policy Evaluation for Reinforcement Learning",
    arXiv 1604.00923, section 8.
    """

    weighs_bias = True
    self_normalised: bool = True
    bias_level: float = 0.5
    bias_resamples: int = 200

    def setup(self) -> None:
        super().setup()
        if not 0 <= self.bias_level < 1 or self.bias_resamples < 1:
            raise ValueError(
                f"BlendedReturns: bias_level must be in [0, 1) and bias_resamples >= 1, found {self.bias_level} and "
                f"{self.bias_resamples}"
            )

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        terms = self.doubly_robust(table)
        return _blended(terms, self.blend(terms))

    def doubly_robust(self, table: LoggedDecisions) -> WeightedTerms:
        """Returns the terms of g_T: the corrections of all decisions and then their values, [B, 2 T]."""
        importance = table.log_weights()
        weights = self.limit(importance)
        before = np.concatenate([np.zeros((len(table), 1)), weights[:, :-1]], 1)
        both = np.concatenate([weights, before], 1), np.concatenate(self.discounted(table), 1)
        return WeightedTerms(*both, self.self_normalised, importance)

    def blend(self, terms: WeightedTerms) -> Numbers:
        """Returns x [T + 1] of the terms of a doubly robust estimate."""
        product = terms.weight * terms.value
        covariance = np.atleast_2d(np.cov(_partial_sums(product), rowvar=False)) / len(product)
        means = _partial_sums(product.mean(0)[None])[0]
        draw = np.random.default_rng(self.seed)
        # Sorted, so that the order of the episodes changes no draw.
        order = np.lexsort((*product.T, *terms.weight.T))
        rows = draw.integers(len(product), size=(self.bias_resamples, len(product)))
        found = resampled(terms.weight[order], product[order], rows, self_normalised=self.self_normalised).sum(1)
        tail = (1 - self.bias_level) / 2
        low, high = np.quantile(found, [tail, 1 - tail])
        bias = np.maximum(means - max(high, means[-1]), 0) + np.minimum(means - min(low, means[-1]), 0)
        return least_on_simplex(covariance + np.outer(bias, bias))

    def measure(self, table: LoggedDecisions) -> Measured:
        unbiased = self.doubly_robust(table)
        x = self.blend(unbiased)
        terms = _blended(unbiased, x)
        found = measured(self, table, terms, terms.interval(self.interval, self.level, self.resamples, self.seed))
        found = with_bias(found, unbiased.interval(self.interval, self.level, self.resamples, self.seed))
        steps = float(x @ np.arange(len(x)))
        values = {**found.values, "weight_of_the_model": float(x[0]), "corrected_steps": steps}
        return dataclasses.replace(found, values=values)


def _blended(terms: WeightedTerms, x: Numbers) -> WeightedTerms:
    """Returns the terms of sum_j x_j g_j: the correction of step t is in the g_j with j > t, its value in j >= t."""
    beyond = np.cumsum(x[::-1])[::-1]
    value = terms.value * np.concatenate([beyond[1:], beyond[:-1]])
    return WeightedTerms(terms.log_weight, value, terms.self_normalised, terms.importance)


def _partial_sums(product: Numbers) -> Numbers:
    """Returns each episode's terms of g_0 .. g_T, [n, T + 1], from those of its corrections and values, [n, 2 T]."""
    n, T = len(product), product.shape[1] // 2
    nothing = np.zeros((n, 1))
    corrections = np.concatenate([nothing, np.cumsum(product[:, :T], 1)], 1)
    values = np.cumsum(np.concatenate([product[:, T:], nothing], 1), 1)
    found: Numbers = corrections + values
    return found


def least_on_simplex(matrix: Numbers) -> Numbers:
    """Returns x >= 0 with sum x = 1 of least x' M x, for M positive semidefinite [J, J].

    Minimising |A x|^2 + s (1 - sum x)^2 over x >= 0, with A' A = M, has the same direction for every s > 0, which makes
    it a problem of nonnegative least squares.
    """
    from scipy.optimize import nnls

    scale = float(np.trace(matrix)) / len(matrix)
    if scale <= 0:
        return np.eye(len(matrix))[-1]
    values, vectors = np.linalg.eigh(matrix / scale)
    rows = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    found: Numbers = nnls(np.vstack([rows, np.ones(len(matrix))]), np.append(np.zeros(len(matrix)), 1.0))[0]
    return found / found.sum()
