"""Files of rows that metrics measure: the names of columns, the check of one row, and the data that all make."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.errors import UserError
from polopt.names import nearest


class MetricDataError(UserError, ValueError):
    """Data cannot be measured; the message names the row or the field, what was found and the fix."""


# A row and the file's own name of a column, by polopt's -> the checked row.
RowParser = Callable[[Mapping[str, Any], Mapping[str, str] | None], Any]

FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


@dataclasses.dataclass(frozen=True)
class RunScores:
    """The held-out scores of a training run.

    tasks: by the name of each stage, in order, the task that it trains on. evaluations: in order, maps of `stage`,
    `step`, `when`, which is before, during or after the stage, `score`, `round` where there are several, and `other`,
    the name of problems that are not trained on.
    """

    tasks: Mapping[str, str]
    evaluations: Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """The format of the files that a metric measures.

    columns: the names that a file may have for itself. parse: checks a row, without naming it in errors. assemble:
    returns the data of all rows, each with its number for messages. what: the data, in a few words. error: the class of
    the errors. rows_of_run: returns the rows of a training run's held-out scores; None where a run has none.
    """

    what: str
    columns: tuple[str, ...]
    parse: RowParser
    assemble: Callable[[Sequence[tuple[int, Any]]], Any]
    error: type[MetricDataError] = MetricDataError
    rows_of_run: Callable[[RunScores], Sequence[Mapping[str, Any]]] | None = None


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


def flag_in(row: Mapping[str, Any], name: str, *, default: bool | None = None) -> bool:
    """Returns a row's true or false; the default for one that is missing, null or empty.

    Raises:
        MetricDataError: it is missing without a default, or neither true nor false.
    """
    value = row.get(name)
    if value is None or value == "":
        if default is not None:
            return default
        raise MetricDataError(f"column {name!r} is missing: true or false")
    if (key := str(value).strip().lower()) not in FLAGS:
        raise MetricDataError(f"{name} must be true or false, found {value!r:.60}")
    return FLAGS[key]


def name_in(row: Mapping[str, Any], name: str) -> str:
    """Returns a row's name as text.

    Raises:
        MetricDataError: it is missing or empty.
    """
    text = row.get(name)
    if text is None or str(text).strip() == "":
        raise MetricDataError(f"column {name!r} is missing: a name")
    return str(text).strip()


def list_in(row: Mapping[str, Any], name: str) -> Any:
    """Returns a row's list, which a table holds as JSON text; None where it is missing or empty.

    Raises:
        MetricDataError: it is no list.
    """
    value = row.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = value
    if hasattr(found, "tolist"):
        found = found.tolist()
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise MetricDataError(f"{name} must be a list, found {value!r:.60}")
    return found


def probabilities_in(row: Mapping[str, Any], name: str, ndim: int = 1) -> NDArray[np.float64] | None:
    """Returns a row's probabilities, a list or, for ndim 2, a list of lists, each of which sums to 1; None where they
    are missing.

    Raises:
        MetricDataError: another shape, or no distribution.
    """
    value = list_in(row, name)
    if value is None:
        return None
    try:
        found = np.array(value, float)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if hasattr(value[0] if len(value) else None, "tolist"):
        found = np.stack([np.asarray(x, float) for x in value])
    if found.ndim != ndim or not found.size or not np.isfinite(found).all():
        raise MetricDataError(f"{name} must be {'a list' if ndim == 1 else 'equally long lists'} of probabilities")
    if (found < 0).any() or (np.abs(found.sum(-1) - 1) > 1e-6).any():
        raise MetricDataError(f"{name}: probabilities must be at least 0 and sum to 1, found {found.sum(-1)!s:.60}")
    return found
