"""Results of tests of an agent's rules: which were tested, and which were broken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, list_in, name_in, number_in

COLUMNS = ("event", "policies", "violated", "difficulty")


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyTestResults:
    """N runs of tests; lists, [N] each.

    event: names; runs of one event are samples of it. policies: lists of the rules that were tested. violated: lists of
    those that were broken. difficulty: numbers.

    Raises:
        MetricDataError: lists of different lengths or without rows, a run that tests nothing, a broken rule that was
            not tested, or a difficulty that is no finite number.
    """

    event: Any
    policies: Any
    violated: Any
    difficulty: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", np.asarray(self.event, str))
        object.__setattr__(self, "difficulty", np.asarray(self.difficulty, float))
        for name in ("policies", "violated"):
            object.__setattr__(self, name, [tuple(map(str, rules)) for rules in getattr(self, name)])
        lengths = {f.name: len(getattr(self, f.name)) for f in dataclasses.fields(self)}
        if not len(self.event) or len(set(lengths.values())) > 1:
            raise MetricDataError(f"PolicyTestResults: every column must have N >= 1 rows, found {lengths}")
        if not np.isfinite(self.difficulty).all():
            raise MetricDataError("PolicyTestResults: difficulty must be finite numbers")
        for event, tested, broken in zip(self.event, self.policies, self.violated, strict=True):
            if not tested:
                raise MetricDataError(f"event {event!r:.60}: policies must name the rules that were tested")
            if extra := sorted(set(broken) - set(tested)):
                raise MetricDataError(f"event {event!r:.60}: {extra[0]!r:.60} is violated and not among its policies")

    def __len__(self) -> int:
        return len(self.event)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> PolicyTestResults:
        at = np.arange(len(self))[rows]
        tested, broken = ([each[i] for i in at] for each in (self.policies, self.violated))
        return PolicyTestResults(self.event[at], tested, broken, self.difficulty[at])

    def names(self) -> list[str]:
        """Returns the rules that were tested."""
        return sorted({rule for rules in self.policies for rule in rules})

    def tables(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Returns which run tests, and which breaks, each rule, [N, P]."""
        names = self.names()
        tested, broken = (
            np.array([[name in rules for name in names] for rules in map(set, each)])
            for each in (self.policies, self.violated)
        )
        return tested, broken


def result_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> tuple[str, Any, Any, float]:
    """Checks one run of a test.

    Raises:
        MetricDataError: a column that is missing, no list, or a broken rule that was not tested.
    """
    names = column_names(COLUMNS, columns)
    event, difficulty = name_in(row, names["event"]), number_in(row, names["difficulty"]) or 0.0
    tested = list_in(row, names["policies"])
    if not tested:
        raise MetricDataError(f"column {names['policies']!r} is missing or empty: a list of names")
    broken = list_in(row, names["violated"])
    if broken is None and names["violated"] not in row:
        raise MetricDataError(f"column {names['violated']!r} is missing: a list of names, empty if none is broken")
    tested, broken = (tuple(str(x) for x in each) for each in (tested, broken or []))
    if extra := sorted(set(broken) - set(tested)):
        raise MetricDataError(f"{names['violated']}: {extra[0]!r:.60} is not among {names['policies']}")
    return event, tested, broken, difficulty


def policy_test_results(rows: Iterable[tuple[int, tuple[str, Any, Any, float]]]) -> PolicyTestResults:
    """Assembles runs.

    Raises:
        MetricDataError: there are no rows.
    """
    found = [row for _, row in rows]
    if not found:
        raise MetricDataError("there are no runs of tests; give one a row")
    event, tested, broken, difficulty = (list(x) for x in zip(*found, strict=True))
    return PolicyTestResults(event, tested, broken, difficulty)


RESULT_ROWS = RowFormat("runs of tests of rules", COLUMNS, result_row, policy_test_results)
