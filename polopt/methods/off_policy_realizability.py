"""Realizability: how hard off-policy evaluation is in a class of action values that Bellman backups leave."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric
from polopt.metrics.value_class import FEATURE_ROWS, FeatureTransitions, bellman_incompleteness, concentrability


@method(
    paper=Paper(
        title="When is Realizability Sufficient for Off-Policy Reinforcement Learning?",
        authors="Zanette, Andrea",
        year=2022,
        arxiv="2211.05311",
    ),
    changes="Measures features before a policy is evaluated with them: how much of a Bellman error they hide, and "
    "whether fitted Q evaluation converges.",
    room="metrics",
    tier="reading",
)
def off_policy_realizability(
    *, gamma: float = 0.99, ridge: float = 1e-6, level: float = 0.95, resamples: int = 200, seed: int = 0
) -> ValueClassDiagnostics:
    """The incompleteness beta of linear action values Q = phi theta under the distribution mu of the data, with Pi the
    projection onto them and T the target policy's Bellman operator:

        beta = max_Q |(I - Pi) (Q - T Q)| / |Q - T Q|,  amplification = 1 / sqrt(1 - beta^2)

    over the Q of a class that contains the true Q^pi. What temporal differences make 0 is Pi (Q - T Q); the whole
    Bellman error is at most the amplification times that, so incompleteness multiplies the statistical error and adds
    no bias. beta is 0 of a table, and near 1 nothing can be concluded from the data.

    `FQE radius`: fitted Q evaluation converges if and only if it is below 1, whatever beta. `inherent Bellman error`:
    of Q with norm 1, the error that other analyses add. `concentrability`, with the column `target_weight`: how much
    larger a squared norm of the class can be under the target policy's distribution.

    Fixed points of temporal differences are meant, not iterates of fitted Q evaluation. `next_features` should be
    expectations; of single samples their noise counts as incompleteness, so that `pair`, under whose name transitions
    are averaged, should occur often.

    gamma: discount. ridge: relative, of the features' second moments.
    level, resamples, seed: of the percentile bootstrap over episodes, or transitions.

    The paper's beta is of local inherent Bellman errors, for any class, and its bound has 1 / (1 - beta), which is
    larger. This linear form is ours, as the paper's exact definition was not confirmed.
    """
    return ValueClassDiagnostics(gamma=gamma, ridge=ridge, level=level, resamples=resamples, seed=seed)


class ValueClassDiagnostics(Metric):
    """Diagnostics of linear action values; settings as those of the method `off-policy-realizability`."""

    gamma: float = 0.99
    ridge: float = 1e-6
    level: float = 0.95
    resamples: int = 200
    seed: int = 0

    rows = FEATURE_ROWS

    def setup(self) -> None:
        where = "methods.off_policy_realizability.ValueClassDiagnostics"
        if not 0 <= self.gamma <= 1 or not self.ridge > 0:
            raise ValueError(f"{where}: need gamma in [0, 1] and ridge > 0, found {self.gamma} and {self.ridge}")
        if not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                f"{where}: level must be in (0, 1) and resamples >= 1, found {self.level} and {self.resamples}"
            )

    def measure(self, data: FeatureTransitions) -> Measured:
        """Measures the features."""
        values = self.numbers(data)
        units = np.arange(len(data)) if data.episode is None else np.unique(data.episode, return_inverse=True)[1]
        order = np.argsort(units, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(units[order])) + 1)
        draw = np.random.default_rng(self.seed)
        drawn: dict[str, list[float]] = {name: [] for name in values}
        for _ in range(self.resamples):
            rows = np.concatenate([groups[i] for i in draw.integers(len(groups), size=len(groups))])
            sample = data[rows] if self.has_weight(data, rows) else data
            for name, value in self.numbers(sample).items():
                drawn[name].append(value)
        intervals = {name: self.interval(value, drawn[name], len(groups)) for name, value in values.items()}
        return Measured(values, intervals, {}, tuple(self.doubts(data, values)))

    def has_weight(self, data: FeatureTransitions, rows: NDArray[np.int64]) -> bool:
        """Returns whether a resample has any weight, which few rows of weight may all be drawn past."""
        weights = [x[rows] for x in (data.weight, data.target_weight) if x is not None]
        return all(x.sum() > 0 for x in weights)

    def numbers(self, data: FeatureTransitions) -> dict[str, float]:
        """Returns all numbers by name."""
        rows = data.averaged()
        arrays = rows.features, rows.next_features, rows.weight
        found = bellman_incompleteness(*arrays, self.gamma, ridge=self.ridge)
        hidden = 1 - found.beta**2
        numbers = {
            "beta": found.beta,
            "amplification": 1 / float(np.sqrt(hidden)) if hidden > 0 else float("inf"),
            "FQE radius": found.fqe_radius,
            "inherent Bellman error": found.inherent,
        }
        if rows.target_weight is not None:
            arrays = rows.features, rows.weight, rows.target_weight
            numbers["concentrability"] = concentrability(*arrays, ridge=self.ridge)
        return numbers

    def interval(self, value: float, drawn: list[float], n: int) -> Interval:
        """Returns the percentile interval, with the estimate inside: beta of a resample is too high."""
        low, high = np.quantile(drawn, [(1 - self.level) / 2, (1 + self.level) / 2], method="nearest")
        return Interval(value, min(value, float(low)), max(value, float(high)), self.level, n)

    def doubts(self, data: FeatureTransitions, values: dict[str, float]) -> list[str]:
        """Returns sentences on what the numbers forbid, or cannot tell."""
        found = []
        if values["FQE radius"] >= 1:
            found.append("fitted Q evaluation with these features diverges; solve for the fixed point (LSTD) instead")
        counts: NDArray[np.int64] = np.array([1]) if data.pair is None else np.unique(data.pair, return_counts=True)[1]
        if counts.mean() < 10:
            found.append(
                "if next_features are single samples, not expectations, their noise counts as incompleteness: beta is "
                "too high"
            )
        return found
