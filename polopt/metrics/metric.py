"""Metrics: parts that compute numbers with intervals from logged data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.errors import UserError
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.metrics.intervals import Interval
from polopt.metrics.logged import LoggedDecisions
from polopt.metrics.logged_rows import LOGGED_ROWS
from polopt.metrics.row_format import RowFormat
from polopt.part import Part


class MetricError(UserError, ValueError):
    """A metric cannot be computed from the data; the message names the reason and the fix."""


@dataclasses.dataclass(frozen=True)
class ResultTable:
    """A table of a result, as it is printed: names of columns, and a text for each of them in every row.

    caption: how to read it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The result of a metric.

    values: numbers by name. intervals: of those of them that are estimates. rows: one number for each independent unit
    of the data, by name, [n]. cautions: sentences on why a number or an interval may be unreliable. tables: what is
    printed in the place of the list of values, where that would be hard to read.
    """

    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    rows: Mapping[str, NDArray[np.float64]]
    cautions: tuple[str, ...] = ()
    tables: tuple[ResultTable, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class BoundPlot:
    """Points of two quantities, and a line above them that theory draws: y <= min(slope x, ceiling).

    x, y: [n] the points. at: a point of the data itself, and its name. x_name, y_name, points_name, bound_name: labels.
    title, caption: the question that the plot answers, and how to read it.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    at: tuple[float, float, str]
    slope: float
    ceiling: float
    x_name: str
    y_name: str
    points_name: str
    bound_name: str
    title: str
    caption: str

    def bound(self, x: ArrayLike) -> NDArray[np.float64]:
        """Returns the line's height at x [n]."""
        found: NDArray[np.float64] = np.minimum(self.slope * np.asarray(x, float), self.ceiling)
        return found


class Metric(Part):
    """`metric(data)` returns a `Measured` and changes no state.

    rows: the format of the files that `polopt measure` reads for it. A subclass writes `measure(data)`.
    """

    method_kind: ClassVar[str | None] = "metric"
    rows: ClassVar[RowFormat]

    def forward(self, data: Any) -> Measured:
        return self.measure(data)

    def measure(self, data: Any) -> Measured:
        """Measures the data.

        Raises:
            MetricError: the metric cannot be computed from them.
        """
        raise NotImplementedError

    def plot(self, data: Any) -> BoundPlot | None:
        """Returns a plot of the data under the metric's bound, None if it has none."""
        return None


class LoggedMetric(Metric):
    """`metric(table)` or `metric(experience, evaluation)` measures logged decisions.

    `columns` names the columns of a table of logged decisions that the metric reads beyond those that every such table
    has. `weighs_bias` states whether a bias is weighed against the variance, so that the estimate itself depends on the
    number of episodes. A subclass writes `measure(table)`.
    """

    weighs_bias: ClassVar[bool] = False
    rows = LOGGED_ROWS
    reads = frozenset({"rollout_logp", "reward"})

    @property
    def columns(self) -> frozenset[str]:
        return frozenset()

    def forward(self, data: LoggedDecisions | Experience, evaluation: Evaluation | None = None) -> Measured:
        """Measures the data.

        data: a table, or a batch, whose behaviour policy is the one that sampled it. evaluation: of a batch: the
        target policy's log-probabilities.

        Raises:
            MetricError: a batch without an evaluation, a column that the metric reads is missing, or as `measure`.
        """
        if isinstance(data, Experience):
            if evaluation is None:
                raise MetricError(
                    f"{self!r} needs the target policy's log-probabilities of a batch: give metric(experience, "
                    "policy.evaluate(experience))"
                )
            data = LoggedDecisions.of_experience(data, evaluation)
        missing = sorted(name for name in self.all_columns if getattr(data, name) is None)
        if missing:
            raise MetricError(f"{self!r:.80} reads {', '.join(missing)} of each decision, which the data do not have")
        return self.measure(data)

    @property
    def all_columns(self) -> frozenset[str]:
        """Returns `columns` of this metric and of the parts inside it."""
        return frozenset().union(*(getattr(part, "columns", frozenset()) for part in self.parts()))

    def measure(self, table: LoggedDecisions) -> Measured:
        """Measures a table of logged decisions."""
        raise NotImplementedError
