"""Metrics of files of logged decisions, which are read, checked and measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polopt import catalogue
from polopt.metrics import LoggedDataError, LoggedDecisions, LoggedRow, Measured, Metric, logged_decisions, logged_row
from polopt.names import nearest
from polopt.worlds.rows import MalformedRow, read_rows

COLUMNS = ("episode", "step", "state", "action", "reward", "behaviour_probability", "target_probability", "q", "v")


def read_log(path: str | Path, columns: Mapping[str, str] | None = None) -> LoggedDecisions:
    """Reads logged decisions, one a row: JSON lines, a JSON array, CSV or Parquet, by the ending of the file's name.

    columns: the file's own name of a column, by polopt's (`COLUMNS`); `state`, `action`, `q` and `v` may be missing.

    Raises:
        LoggedDataError: a column that polopt does not have, or rows that do not fit together, with their numbers.
        ConfigError: the file cannot be read, or rows are malformed, with their lines.
    """
    for name in columns or {}:
        if name not in COLUMNS:
            raise LoggedDataError(f"{name!r:.60} is no column of a log of decisions{nearest(name, COLUMNS)}")

    def parse(row: dict[str, Any]) -> LoggedRow:
        try:
            return logged_row(row, columns)
        except LoggedDataError as error:
            raise MalformedRow(str(error)) from None

    rows = read_rows(Path(path), parse)
    try:
        return logged_decisions(rows)
    except LoggedDataError as error:
        raise LoggedDataError(f"{path}, {error}") from None


def measure(
    metric: str | Metric, path: str | Path, columns: Mapping[str, str] | None = None, **settings: Any
) -> Measured:
    """Measures a file of logged decisions.

    metric: a method's name, with `settings`, or a metric. columns: as for `read_log`.

    Raises:
        ValueError, TypeError: no such method or setting, or a method that is no metric.
        MetricError, LoggedDataError, ConfigError: as `read_log`, and as the metric.
    """
    found = catalogue.metric(metric, **settings) if isinstance(metric, str) else metric
    result: Measured = found(read_log(path, columns))
    return result
