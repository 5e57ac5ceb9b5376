"""The estimator of least estimated error, of several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from polopt.metrics.logged import LoggedDecisions
from polopt.metrics.metric import LoggedMetric, Measured
from polopt.metrics.off_policy import DoublyRobust, OffPolicyEstimator, with_bias
from polopt.metrics.weight_limits import WeightLimit


class LeastError(LoggedMetric):
    """The result of the candidate c of least var(x_c) / n + (mean(x_c) - mean(x_u))^2, the estimated mean squared
    error, with x [n] an estimator's terms by episode and u an unbiased one.

    candidates: the estimators to choose from; of equals the first.
    unbiased: the estimator that biases are measured against. Its own error counts as the others' bias, so that it is
        chosen too often where it varies much.

    The interval is that of the unbiased estimator, extended to contain the estimate: what is gained is the error of the
    estimate, not the width of the interval. `estimated_bias` is mean(x_c) - mean(x_u).

    Source: Wang, Agarwal and Dudik 2017, arXiv 1612.01205, section 3.2, and Su et al. 2020, arXiv 1907.09623, section
    5, choose by such an error, with a bound on the bias in place of its estimate.
    """

    weighs_bias = True
    candidates: Sequence[OffPolicyEstimator] = (DoublyRobust(),)
    unbiased: OffPolicyEstimator = DoublyRobust()

    @property
    def gamma(self) -> float:
        """Returns the discount of the unbiased estimator."""
        return self.unbiased.gamma

    @property
    def level(self) -> float:
        """Returns the level of the unbiased estimator's interval."""
        return self.unbiased.level

    def setup(self) -> None:
        if not len(self.candidates):
            raise ValueError("metrics.LeastError: give one candidate or more, found none")

    def measure(self, table: LoggedDecisions) -> Measured:
        centre = self.unbiased.terms(table).influence()
        errors, biases = [], []
        for candidate in self.candidates:
            terms = candidate.terms(table).influence()
            variance = float(terms.var(ddof=1)) / len(terms) if len(terms) > 1 else 0.0
            biases.append(float(terms.mean() - centre.mean()))
            errors.append(variance + biases[-1] ** 2)
        best = min(range(len(errors)), key=errors.__getitem__)
        found = with_bias(self.candidates[best].measure(table), self.unbiased.measure(table).intervals["estimate"])
        values = {**found.values, "candidate": float(best), "estimated_error": errors[best] ** 0.5}
        return dataclasses.replace(found, values=values)


def least_error_of_limits(base: OffPolicyEstimator, limits: Sequence[WeightLimit]) -> LeastError:
    """Returns the choice among an unbiased estimator and the same with limited weights."""
    return LeastError(candidates=[*(base.but(limit=limit) for limit in limits), base], unbiased=base)
