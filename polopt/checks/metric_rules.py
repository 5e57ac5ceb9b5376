"""Properties that every metric must satisfy; of off-policy ones on logs of a small problem whose value is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from polopt.checks.state import Rule, repr_builds, yaml_returns
from polopt.metrics import LoggedDecisions, Measured, Metric

LOGS = 60


@dataclasses.dataclass(frozen=True)
class MetricRow:
    """A metric to check.

    log: an even number of independent episodes, from a seed.
    truth: the true value of the metric's estimand.
    """

    part: Metric
    log: Callable[[int], LoggedDecisions]
    truth: float


@dataclasses.dataclass(frozen=True)
class DataRow:
    """A metric to check that reads something else than logged decisions.

    example: its data, from a seed.
    """

    part: Metric
    example: Callable[[int], Any]


def data_order(row: DataRow) -> None:
    """Tests that the order of the data's rows, or of a problem's states, changes no value."""
    for seed in range(3):
        data = row.example(seed)
        expected = row.part(data).values
        for way, order in (("reversed", np.arange(len(data))[::-1]), ("shifted", np.roll(np.arange(len(data)), 1))):
            found = row.part(data[order.copy()]).values
            assert found.keys() == expected.keys(), f"{way}: other values, {sorted(found)}"
            for name, value in expected.items():
                assert np.isclose(found[name], value, rtol=1e-7, atol=1e-9, equal_nan=True), (
                    f"rows {way}: {name} is {found[name]}, expected {value}"
                )


def data_repeats(row: DataRow) -> None:
    """Tests that measuring the same data twice gives the same numbers and intervals."""
    one, two = (row.part(row.example(0)) for _ in range(2))
    assert repr(one.values) == repr(two.values), "other numbers"
    assert repr(one.intervals) == repr(two.intervals), "other intervals"


def _same(found: Measured, expected: Measured, what: str, scale: float = 1.0, intervals: bool = True) -> None:
    pairs = [("estimate", found.values["estimate"], expected.values["estimate"])]
    if intervals:
        one, other = found.intervals["estimate"], expected.intervals["estimate"]
        pairs += [("low end", one.low, other.low), ("high end", one.high, other.high)]
    for name, a, b in pairs:
        assert np.isclose(a, scale * b, rtol=1e-9, atol=1e-12), f"{what}: the {name} is {a}, expected {scale * b}"


def row_order(row: MetricRow) -> None:
    """Tests that the order of the episodes changes nothing; neighbours keep their parity, which may split a log in
    halves.
    """
    table = row.log(0)
    n = len(table)
    for way, order in (("reversed", np.arange(n)[::-1]), ("moved up by two", np.roll(np.arange(n), 2))):
        _same(row.part(table[order]), row.part(table), f"episodes {way}")


def duplicates(row: MetricRow) -> None:
    """Tests that the log followed by itself gives the same estimate, unless the metric weighs bias against variance,
    which is smaller for twice the episodes."""
    if getattr(row.part, "weighs_bias", False):
        return
    table = row.log(1)
    twice = table[np.tile(np.arange(len(table)), 2)]
    _same(row.part(twice), row.part(table), "every episode twice", intervals=False)


def units(row: MetricRow) -> None:
    """Tests that scaling the rewards, and the values with them, scales the estimate."""
    table = row.log(2)
    larger = {n: 1000 * getattr(table, n) for n in ("reward", "q", "v") if getattr(table, n) is not None}
    _same(row.part(dataclasses.replace(table, **larger)), row.part(table), "1000 times the reward", 1000)


def coverage(row: MetricRow) -> None:
    """Tests that intervals cover the true value as often as their level promises, less 6 % for skew.

    The number of covering intervals out of `LOGS` must lie between the binomial quantiles of 10^-4 and 1 - 10^-4.
    """
    from scipy import stats

    found = [row.part(row.log(100 + seed)).intervals["estimate"] for seed in range(LOGS)]
    level = found[0].level
    covered = sum(x.low <= row.truth <= x.high for x in found)
    least, most = stats.binom(LOGS, level - 0.06).ppf(1e-4), stats.binom(LOGS, level).ppf(1 - 1e-4)
    assert least <= covered <= most, f"{covered} of {LOGS} intervals of {level:.0%} hold the truth"


METRIC = (
    Rule("metric_order", "row order", row_order, "The order of the episodes is an accident of the log."),  # type: ignore[arg-type]
    Rule("metric_duplicates", "duplicates", duplicates, "A mean does not depend on how often all of it is there."),  # type: ignore[arg-type]
    Rule("metric_units", "units", units, "A value in cents is a hundred times the value in dollars."),  # type: ignore[arg-type]
    Rule("metric_coverage", "coverage", coverage, "An interval below its level of coverage misleads."),  # type: ignore[arg-type]
    Rule("metric_yaml", "YAML", yaml_returns, "A recipe is kept as YAML; what comes back is what was run."),
    Rule("metric_repr", "print", repr_builds, "What is printed in a report is read as what was run."),
)

DATA_METRIC = (
    Rule("data_order", "row order", data_order, "The order of the rows is an accident of the file."),  # type: ignore[arg-type]
    Rule("data_repeats", "repeats", data_repeats, "A result that cannot be repeated cannot be checked."),  # type: ignore[arg-type]
    METRIC[-2],
    METRIC[-1],
)
