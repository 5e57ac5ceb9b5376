"""Metrics with one deliberate mistake each. The battery must reject every one of them."""

from __future__ import annotations

import dataclasses

import numpy as np

from polopt.methods.ranking_accuracy import RankingAccuracy
from polopt.metrics import LoggedDecisions, Measured, Metric, PerDecisionImportanceSampling, RankedPairs

GAMMA = 0.9


class PerDecision(PerDecisionImportanceSampling):
    """A right one, to be made wrong."""

    gamma: float = GAMMA
    level: float = 0.8

    def with_estimate(self, found: Measured, estimate: float) -> Measured:
        interval = dataclasses.replace(found.intervals["estimate"], estimate=estimate)
        return dataclasses.replace(found, values={"estimate": estimate}, intervals={"estimate": interval})


class LaterCountsMore(PerDecision):
    """Weighs an episode by its place."""

    def measure(self, table: LoggedDecisions) -> Measured:
        x = self.terms(table).influence()
        place = np.arange(1, len(x) + 1)
        return self.with_estimate(super().measure(table), float(x @ place / place.sum()))


class OneLess(PerDecision):
    """Divides by n - 1."""

    def measure(self, table: LoggedDecisions) -> Measured:
        found = super().measure(table)
        return self.with_estimate(found, found.values["estimate"] * len(table) / (len(table) - 1))


class ClippedRewards(PerDecision):
    """Counts no reward beyond 1."""

    def measure(self, table: LoggedDecisions) -> Measured:
        return super().measure(dataclasses.replace(table, reward=table.reward.clip(-1, 1)))


class NarrowInterval(PerDecision):
    """A third as wide as it should be."""

    width: float = 0.3

    def measure(self, table: LoggedDecisions) -> Measured:
        found = super().measure(table)
        x = found.intervals["estimate"]
        half = self.width * (x.high - x.low) / 2
        narrow = dataclasses.replace(x, low=x.estimate - half, high=x.estimate + half)
        return dataclasses.replace(found, intervals={"estimate": narrow})


class WideInterval(NarrowInterval):
    """Four times as wide as it should be."""

    width: float = 4.0


class RestlessMetric(Metric):
    """Changes its own setting."""

    value: float = 1.0

    def setup(self) -> None:
        self.value *= 2


class MisprintedMetric(Metric):
    """Prints as something else."""

    def __repr__(self) -> str:
        return "metrics.DirectMethod()"


class FirstPairTwice(RankingAccuracy):
    """Counts the first pair of a file twice."""

    def measure(self, pairs: RankedPairs) -> Measured:
        return super().measure(pairs[[0, *range(len(pairs))]])


class RandomPairs(RankingAccuracy):
    """Measures another half of the pairs each time."""

    def measure(self, pairs: RankedPairs) -> Measured:
        return super().measure(pairs[np.random.default_rng().permutation(len(pairs))[: len(pairs) // 2]])
