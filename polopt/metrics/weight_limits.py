"""Limits of importance weights: less variance for some bias."""

from __future__ import annotations

import numpy as np

from polopt.metrics.logged import Numbers
from polopt.part import Part


class WeightLimit(Part):
    """`limit(log_weight [B, T]) -> [B, T]`: logarithms of the weights that an estimator uses in place of the cumulative
    importance weights w; here w itself."""

    def forward(self, log_weight: Numbers) -> Numbers:
        return log_weight


class ClippedWeights(WeightLimit):
    """min(w, most).

    most (> 0): the largest weight.

    Source: Ionides 2008, "Truncated Importance Sampling"; Bottou et al. 2013, arXiv 1209.2355, for logged bandits.
    """

    most: float = 10.0

    def setup(self) -> None:
        _check_positive(self, "most", self.most)

    def forward(self, log_weight: Numbers) -> Numbers:
        return np.minimum(log_weight, np.log(self.most))


class SwitchedWeights(WeightLimit):
    """w as long as no weight of the episode has exceeded `most`, and 0 from there on: there a doubly robust estimator
    keeps the model's value.

    most (> 0): the largest weight; as it grows nothing is left out, and below the smallest weight everything is.

    Source: Wang, Agarwal and Dudik 2017, "Optimal and Adaptive Off-policy Evaluation in Contextual Bandits",
    arXiv 1612.01205.
    """

    most: float = 10.0

    def setup(self) -> None:
        _check_positive(self, "most", self.most)

    def forward(self, log_weight: Numbers) -> Numbers:
        within = np.maximum.accumulate(log_weight, axis=1) <= np.log(self.most)
        return np.where(within, log_weight, -np.inf)


class ShrunkWeights(WeightLimit):
    """strength w / (w^2 + strength): w for w^2 well below the strength, and falling as strength / w beyond it.

    strength (> 0): lambda; as it grows nothing is shrunk, and as it falls to 0 all weights do.

    Source: Su, Dimakopoulou, Krishnamurthy and Dudik 2020, "Doubly Robust Off-Policy Evaluation with Shrinkage",
    arXiv 1907.09623, the optimistic shrinkage.
    """

    strength: float = 100.0

    def setup(self) -> None:
        _check_positive(self, "strength", self.strength)

    def forward(self, log_weight: Numbers) -> Numbers:
        log_strength = np.log(self.strength)
        return log_strength + log_weight - np.logaddexp(2 * log_weight, log_strength)


def _check_positive(part: Part, name: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"metrics.{type(part).__name__}: {name} must be positive, found {value}")
