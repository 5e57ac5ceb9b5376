"""Files of rows that metrics measure: the names of columns, the check of one row, and the data that all make."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polopt.errors import UserError
from polopt.names import nearest


class MetricDataError(UserError, ValueError):
    """Data cannot be measured; the message names the row or the field, what was found and the fix."""


# A row and the file's own name of a column, by polopt's -> the checked row.
RowParser = Callable[[Mapping[str, Any], Mapping[str, str] | None], Any]


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """The format of the files that a metric measures.

    columns: the names that a file may have for itself. parse: checks a row, without naming it in errors. assemble:
    returns the data of all rows, each with its number for messages. what: the data, in a few words. error: the class of
    the errors.
    """

    what: str
    columns: tuple[str, ...]
    parse: RowParser
    assemble: Callable[[Sequence[tuple[int, Any]]], Any]
    error: type[MetricDataError] = MetricDataError


def column_names(known: Sequence[str], columns: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the file's name of each column. columns: those that differ from polopt's."""
    return {name: name for name in known} | dict(columns or {})


def number_in(row: Mapping[str, Any], name: str, *, required: bool = True) -> float | None:
    """Returns a row's finite number; None for one that is not required and missing, null or empty.

    Raises:
        MetricDataError: it is missing and required, or no finite number.
    """
    value = row.get(name)
    if value is None or value == "":
        if not required:
            return None
        problem = f"column {name!r} is empty" if name in row else f"column {name!r} is missing{nearest(name, row)}"
        raise MetricDataError(problem)
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise MetricDataError(f"{name} must be a finite number, found {value!r:.60}")
    return found
