"""The checks of metrics hold for every metric that there is, and find what was planted."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import polopt as po
from polopt.checks import check
from polopt.metrics import LeastError, Measured, Metric, OffPolicyEstimator, PerDecisionImportanceSampling

TITLES = ("row order", "duplicates", "units", "coverage", "YAML", "print")
# Of metrics that read something else than logged decisions.
DATA_TITLES = ("row order", "repeats", "YAML", "print")


def verdicts(metric: Metric) -> dict[str, str]:
    (report,) = check(metric, "it")
    assert report.kind == "metric"
    return {finding.title: finding.verdict for finding in report.findings}


@pytest.mark.parametrize("slug", po.slugs("metric"))
def test_every_metric_holds(slug: str) -> None:
    found = po.metric(slug)
    logged = isinstance(found, OffPolicyEstimator | LeastError)
    found = found.but(resamples=100) if isinstance(found, OffPolicyEstimator) else found
    assert verdicts(found) == dict.fromkeys(TITLES if logged else DATA_TITLES, "holds")


class FirstEpisode(PerDecisionImportanceSampling):
    """Counts the first episode twice."""

    def terms(self, table):
        return super().terms(table[np.append(0, np.arange(len(table)))])


class Bonus(PerDecisionImportanceSampling):
    """Adds one to each reward."""

    def terms(self, table):
        return super().terms(dataclasses.replace(table, reward=table.reward + 1))


class Narrow(PerDecisionImportanceSampling):
    """Claims a third of the interval's width."""

    def measure(self, table):
        found = super().measure(table)
        interval = found.intervals["estimate"]
        x, width = interval.estimate, (interval.high - interval.low) / 6
        narrow = dataclasses.replace(interval, low=x - width, high=x + width)
        return Measured(found.values, {**found.intervals, "estimate": narrow}, found.rows, found.cautions)


@pytest.mark.parametrize(
    ("metric", "broken"),
    [(FirstEpisode(), {"row order"}), (Bonus(), {"units"}), (Narrow(), {"coverage"})],
    ids=lambda x: type(x).__name__ if isinstance(x, Metric) else "",
)
def test_what_was_planted_is_found(metric: Metric, broken: set[str]) -> None:
    found = {title for title, verdict in verdicts(metric).items() if verdict == "breaks"}
    assert broken <= found


def test_a_metric_of_something_else_is_refused() -> None:
    class Other(Metric):
        def measure(self, table):
            raise NotImplementedError

    with pytest.raises(ValueError, match="reads no logged decisions"):
        check(Other())
