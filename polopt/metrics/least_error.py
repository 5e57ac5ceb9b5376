"""The estimator of least estimated error, of several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from polopt.metrics.logged import LoggedDecisions
from polopt.metrics.metric import LoggedMetric, Measured
from polopt.metrics.off_policy import DoublyRobust, OffPolicyEstimator, with_bias
from polopt.metrics.weight_limits import WeightLimit
from polopt.metrics.weighted import WeightedTerms


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

    def terms(self, table: LoggedDecisions) -> WeightedTerms:
        """Returns the terms of the chosen candidate."""
        return self._choice(table)[1]

    def _choice(self, table: LoggedDecisions) -> tuple[int, WeightedTerms, float]:
        """Returns the number of the chosen candidate, its terms, and its estimated squared error."""
        centre = self.unbiased.terms(table).influence().mean()
        found = []
        for number, candidate in enumerate(self.candidates):
            terms = candidate.terms(table)
            x = terms.influence()
            variance = float(x.var(ddof=1)) / len(x) if len(x) > 1 else 0.0
            found.append((variance + float(x.mean() - centre) ** 2, number, terms))
        error, number, terms = min(found, key=lambda each: each[:2])
        return number, terms, error

    def measure(self, table: LoggedDecisions) -> Measured:
        best, _, error = self._choice(table)
        found = with_bias(self.candidates[best].measure(table), self.unbiased.measure(table).intervals["estimate"])
        values = {**found.values, "candidate": float(best), "estimated_error": error**0.5}
        return dataclasses.replace(found, values=values)


def least_error_of_limits(base: OffPolicyEstimator, limits: Sequence[WeightLimit]) -> LeastError:
    """Returns the choice among an unbiased estimator and the same with limited weights."""
    return LeastError(candidates=[*(base.but(limit=limit) for limit in limits), base], unbiased=base)
