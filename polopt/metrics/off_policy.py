"""Off-policy evaluation: importance sampling, the direct method, and doubly robust estimators."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from polopt.metrics.action_values import ActionValueModel, ActionValues, TabularValues
from polopt.metrics.intervals import Interval, bootstrap, t_interval
from polopt.metrics.logged import LoggedDecisions, Numbers
from polopt.metrics.metric import LoggedMetric, Measured, MetricError
from polopt.metrics.weight_limits import WeightLimit
from polopt.metrics.weighted import WeightedTerms, weight_cautions

IntervalKind = Literal["t", "normal", "bootstrap"]


class OffPolicyEstimator(LoggedMetric):
    """Estimates the expected discounted return of the target policy, E_pi[sum_t gamma^t r_t].

    gamma: discount. self_normalised: divide by the sum of the weights, not by the number of episodes: a little bias,
    which vanishes with the number of episodes, for less variance and an estimate within the range of the terms.
    interval: over episodes, of the mean of their terms (of the linearised ratio, where self-normalised): Student's t, a
    normal one, or the bias-corrected bootstrap, which draws episodes `resamples` times with `seed`. level: of the
    interval. limit: of the cumulative importance weights; the interval does not contain its bias.

    A subclass writes `terms(table)`.
    """

    gamma: float = 1.0
    self_normalised: bool = False
    limit: WeightLimit = WeightLimit()
    interval: IntervalKind = "t"
    level: float = 0.95
    resamples: int = 2000
    seed: int = 0

    def setup(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"{type(self).__name__}: gamma must be in [0, 1], found {self.gamma}")
        if not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                f"{type(self).__name__}: level must be in (0, 1) and resamples >= 1, found {self.level} and "
                f"{self.resamples}"
            )

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        """Returns the weights [B, K] and values [B, K] whose product, summed, is the estimate."""
        raise NotImplementedError

    def measure(self, table: LoggedDecisions) -> Measured:
        """Computes the estimate and its interval, the behaviour policy's value, and the effective sample size of the
        weights.

        Raises:
            MetricError: no logged episode is possible under the target policy, or, without self_normalised, weights
                that are too large for a number.
        """
        terms = self.terms(table)
        return measured(self, table, terms, terms.interval(self.interval, self.level, self.resamples, self.seed))


def measured(
    metric: OffPolicyEstimator, table: LoggedDecisions, terms: WeightedTerms, interval: Interval, *more: str
) -> Measured:
    """Assembles the result of an off-policy estimator. more: cautions in addition to those of the weights."""
    weights = terms.summary()
    logged = t_interval(table.returns(metric.gamma), metric.level)
    values = {"estimate": interval.estimate, "logged": logged.estimate, "episodes": float(len(table)), **weights}
    rows = {"value": terms.influence(), "weight": terms.final_weight, "logged": table.returns(metric.gamma)}
    return Measured(values, {"estimate": interval, "logged": logged}, rows, (*weight_cautions(terms), *more))


def with_bias(found: Measured, unbiased: Interval) -> Measured:
    """Gives a biased estimate the interval of an unbiased one, extended to contain the estimate: the data tell the bias
    no better than the unbiased estimate does, so that a shorter interval would hold the true value too seldom."""
    own = found.intervals["estimate"]
    wide = dataclasses.replace(unbiased, estimate=own.estimate)
    wide = dataclasses.replace(wide, low=min(wide.low, own.estimate), high=max(wide.high, own.estimate))
    bias = own.estimate - unbiased.estimate
    caution = f"the estimate is biased, by {bias:.3g} as far as the unbiased one tells; the interval is that one's"
    return dataclasses.replace(
        found,
        values={**found.values, "estimated_bias": bias},
        intervals={**found.intervals, "estimate": wide},
        cautions=(*found.cautions, *([caution] if bias else [])),
    )


def measured_refitted(metric: OffPolicyEstimator, table: LoggedDecisions, *more: str) -> Measured:
    """Measures with an interval that contains the error of what the estimator fits: the percentile bootstrap over
    episodes, each time with everything fitted anew. more: as in `measured`."""

    def estimates(samples: Numbers) -> Numbers:
        rows = samples.astype(int).reshape(-1, samples.shape[-1])
        return np.array([metric.terms(table[row]).estimate() for row in rows]).reshape(samples.shape[:-1])

    table = table.in_order()
    places = np.arange(len(table))
    interval = bootstrap(estimates, places, level=metric.level, resamples=metric.resamples, seed=metric.seed)
    return measured(metric, table, metric.terms(table), interval, *more)


class TrajectoryImportanceSampling(OffPolicyEstimator):
    """mean_i w_{0:T-1} sum_t gamma^t r_t: each episode's return, weighted by the ratio of its probability under the
    target policy to that under the behaviour policy; self-normalised, sum_i w G / sum_i w.

    Unbiased (self-normalised: consistent) where the behaviour policy takes every action that the target policy takes.

    Source: Precup, Sutton and Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation".
    """

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        weights, gain = table.log_weights(), table.returns(self.gamma)[:, None]
        return WeightedTerms(self.limit(weights)[:, -1:], gain, self.self_normalised, weights)


class PerDecisionImportanceSampling(OffPolicyEstimator):
    """mean_i sum_t gamma^t w_{0:t} r_t: a reward is weighted by the ratios up to its decision alone; self-normalised,
    each step's weights are divided by their own mean.

    Unbiased (self-normalised: consistent) where the behaviour policy takes every action that the target policy takes,
    with less variance than whole trajectories' weights where rewards are spread over the episode.

    Source: Precup, Sutton and Singh 2000, "Eligibility Traces for Off-Policy Policy Evaluation".
    """

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        discount = self.gamma ** np.arange(table.reward.shape[1])
        weights = table.log_weights()
        return WeightedTerms(self.limit(weights), discount * table.reward, self.self_normalised, weights)


class DoublyRobust(OffPolicyEstimator):
    """mean_i sum_t gamma^t [w_{0:t} (r_t - q_t) + w_{0:t-1} v_t], with w_{0:-1} = 1: a model's values, and the model's
    errors by per-decision importance sampling; self-normalised (the weighted doubly robust estimator), each step's
    weights are divided by their own mean.

    Unbiased for any model; a better model lowers the variance of the weighted terms. model: of the values.
    folds: for each of this many parts of the episodes the model is fitted to the other parts, so that it is
    independent of the episodes that correct it; 1 fits it once to all.

    Raises:
        MetricError: fewer episodes than folds.

    Source: Jiang and Li 2016, "Doubly Robust Off-policy Value Evaluation for Reinforcement Learning", arXiv 1511.03722;
    self-normalised: Thomas and Brunskill 2016, "Data-Efficient Off-Policy Policy Evaluation for Reinforcement
    Learning", arXiv 1604.00923.
    """

    model: ActionValueModel = TabularValues()
    folds: int = 2

    def setup(self) -> None:
        super().setup()
        if self.folds < 1:
            raise ValueError(f"DoublyRobust: folds must be >= 1, found {self.folds}")

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        importance = table.log_weights()
        errors, values = self.discounted(table)
        # w_{0:t} weighs the error of decision t and the value of the next state: T + 1 columns, the first of weight 1.
        shape = len(table), errors.shape[1] + 1
        weights, both = np.zeros(shape, order="F"), np.zeros(shape, order="F")
        weights[:, 1:] = self.limit(importance)
        both[:, :-1] = values
        both[:, 1:] += errors
        return WeightedTerms(weights, both, self.self_normalised, importance)

    def discounted(self, table: LoggedDecisions) -> tuple[Numbers, Numbers]:
        """Returns the discounted errors of the model's values and the values, gamma^t (r_t - q_t) and gamma^t v_t,
        [B, T] each, 0 after an episode's end."""
        found = self.values(table)
        discount = self.gamma ** np.arange(table.reward.shape[1])
        errors, values = table.reward - found.q, found.v * discount
        errors *= discount
        for each in (errors, values):
            np.copyto(each, 0.0, where=~table.mask)
        return errors, values

    def values(self, table: LoggedDecisions) -> ActionValues:
        """Returns the model's values of all episodes, each from a model that was not fitted to it where folds > 1."""
        if not self.model.fitted or self.folds == 1:
            return self.model(table, table, self.gamma)  # type: ignore[no-any-return]
        if len(table) < self.folds:
            raise MetricError(f"DoublyRobust: {self.folds} folds need as many episodes, found {len(table)}; set 1")
        q, v = np.zeros(table.reward.shape), np.zeros(table.reward.shape)
        fold = np.arange(len(table)) % self.folds
        for number in range(self.folds):
            own = fold == number
            found = self.model(table[np.flatnonzero(~own)], table[np.flatnonzero(own)], self.gamma)
            q[own], v[own] = found.q, found.v
        return ActionValues(q, v)


class DirectMethod(OffPolicyEstimator):
    """mean_i v(s_0): a model's mean value of the first states. As biased as its model.

    model: of the values. The interval of a fitted model is the percentile bootstrap over episodes, each time with the
    model fitted anew, `resamples` times; that of given values is that of the mean over episodes and does not include
    the values' own errors. self_normalised changes nothing: there are no weights.
    """

    model: ActionValueModel = TabularValues()
    resamples: int = 200

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        found = self.model(table, table, self.gamma)
        return WeightedTerms(np.zeros((len(table), 1)), found.v[:, :1], self.self_normalised, None)

    def measure(self, table: LoggedDecisions) -> Measured:
        if not self.model.fitted:
            terms = self.terms(table)
            interval = terms.interval(self.interval, self.level, self.resamples, self.seed)
            caution = "the interval contains nothing of the errors of the values that were given"
            return measured(self, table, terms, interval, caution)
        return measured_refitted(self, table, *self._unseen(table))

    def _unseen(self, table: LoggedDecisions) -> list[str]:
        unseen = self.model(table, table, self.gamma).unseen
        fraction = 0.0 if unseen is None else float(unseen[table.mask].mean())
        if fraction < 1e-3:
            return []
        return [
            f"the log holds no decision for {fraction:.0%} of what the target policy does in its states, which counts "
            "as 0"
        ]
