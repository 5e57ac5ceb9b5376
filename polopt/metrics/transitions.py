"""Transitions of logged or demonstrated episodes, from arrays or from rows of a file."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, flag_in, name_in, number_in

Numbers = NDArray[np.float64]
# The one data set of rows that name none.
ONLY = "data"


@dataclasses.dataclass(frozen=True, eq=False)
class LoggedTransitions:
    """N transitions of episodes; arrays or lists of N. They are kept in the order of data set, episode and step.

    episode, step: name of the episode, and the decision's place in it, a whole number, without gaps. state, action:
    [N] or [N, D] numbers, or [N] texts, which are categories. reward: of the decision; None where none is known.
    done: True where the episode ends with this decision; None where that is not known. dataset: name of the data set,
    where several are compared; None for one. place: the row's number, for messages; None counts from 1. categories:
    those of "state" and "action" that are categories, whose numbers only identify them.

    Raises:
        MetricDataError: arrays of different lengths or without rows, numbers that are not finite, or a problem of
            `step_problems`.
    """

    episode: Any
    step: Any
    state: Any
    action: Any
    reward: Any = None
    done: Any = None
    dataset: Any = None
    place: Any = None
    categories: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        n = len(self.episode)
        found: dict[str, Any] = {"episode": np.asarray(self.episode, str), "step": np.asarray(self.step, float)}
        categories = set(self.categories)
        for name in ("state", "action"):
            values = np.asarray(getattr(self, name))
            if values.dtype.kind not in "biuf":
                values = np.unique(values.astype(str), return_inverse=True)[1].reshape(-1)
                categories.add(name)
            found[name] = values.astype(float).reshape(len(values), -1)
        found["reward"] = None if self.reward is None else np.asarray(self.reward, float)
        found["done"] = None if self.done is None else np.asarray(self.done, bool)
        found["dataset"] = np.full(n, ONLY) if self.dataset is None else np.asarray(self.dataset, str)
        found["place"] = np.arange(1, n + 1) if self.place is None else np.asarray(self.place, int)
        shapes = {name: x.shape for name, x in found.items() if x is not None}
        if not n or any(
            shape[0] != n or len(shape) > 1 + (name in ("state", "action")) for name, shape in shapes.items()
        ):
            raise MetricDataError(f"LoggedTransitions: every column must have N >= 1 rows, found {shapes}")
        for name in ("step", "state", "action", "reward"):
            if found[name] is not None and not np.isfinite(found[name]).all():
                raise MetricDataError(f"LoggedTransitions: {name} must be finite numbers")
        order = np.lexsort([found["step"], found["episode"], found["dataset"]])
        for name, x in found.items():
            object.__setattr__(self, name, None if x is None else x[order])
        object.__setattr__(self, "categories", frozenset(categories))
        keys = zip(self.place.tolist(), self.dataset.tolist(), self.episode.tolist(), self.step.tolist(), strict=True)
        done = None if self.done is None else self.done.tolist()
        if problems := step_problems(list(keys), done):
            raise MetricDataError(next(iter(problems.values())))

    def __len__(self) -> int:
        return len(self.episode)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> LoggedTransitions:
        columns = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "categories"}
        taken = {name: None if x is None else x[rows] for name, x in columns.items()}
        return LoggedTransitions(**taken, categories=self.categories)

    @functools.cached_property
    def number(self) -> NDArray[np.int64]:
        """Returns the number of each row's episode, [N], from 0 in the order of data set and name."""
        new = (self.episode[1:] != self.episode[:-1]) | (self.dataset[1:] != self.dataset[:-1])
        found: NDArray[np.int64] = np.concatenate([[0], np.cumsum(new)])
        return found

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Returns the decisions of each episode, [E]."""
        return np.bincount(self.number)

    @property
    def first(self) -> NDArray[np.int64]:
        """Returns the index of each episode's first row, [E]."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]])

    def means(self, values: Numbers) -> Numbers:
        """Returns the mean over each episode of `values` [N], as [E]."""
        return np.bincount(self.number, values) / self.lengths

    def of(self, dataset: str) -> LoggedTransitions:
        """Returns the transitions of one data set."""
        return self[np.flatnonzero(self.dataset == dataset)]


def step_problems(
    keys: Sequence[tuple[int, str, str, float]], done: Sequence[bool] | None = None
) -> dict[tuple[str, str], str]:
    """Returns a sentence on each episode, by data set and name, whose steps repeat, have gaps, are no whole numbers, do
    not begin at 0 or 1, or go on after the end.

    keys: number, data set, episode and step of each row, in the order of the last three. done: of each row.
    """
    found: dict[tuple[str, str], str] = {}
    before: tuple[int, str, str, float] | None = None
    for i, (place, dataset, episode, step) in enumerate(keys):
        key, where = (dataset, episode), f"episode {episode!r:.60}"
        first = before is None or before[1:3] != key
        problem = None
        if step != int(step) or step < 0:
            problem = f"row {place}: step must be a whole number >= 0, found {step:g}"
        elif first and step > 1:
            problem = f"row {place}: {where} begins at step {step:g}, expected 0 or 1; give all of its decisions"
        elif not first and before is not None and step == before[3]:
            problem = (
                f"rows {before[0]} and {place}: {where} has step {step:g} twice; give every episode a name of its own"
            )
        elif not first and before is not None and step != before[3] + 1:
            problem = f"row {place}: {where} goes from step {before[3]:g} to {step:g}; give all of its decisions"
        elif not first and done is not None and done[i - 1] and before is not None:
            problem = (
                f"row {before[0]}: {where} is done at step {before[3]:g}, and goes on; give what follows a new name"
            )
        if problem is not None:
            found.setdefault(key, problem)
        before = (place, dataset, episode, step)
    return found


def transition_row(
    state: str, outcomes: bool, row: Mapping[str, Any], columns: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Checks one transition of a file. state: its column. outcomes: whether reward, which is required, and done are
    read.

    Raises:
        MetricDataError: a column that is missing, or an invalid value; the message does not name the row.
    """
    names = column_names(("episode", "step", state, "action", "reward", "done", "dataset"), columns)
    found: dict[str, Any] = {"step": number_in(row, names["step"])}
    found["episode"] = name_in(row, names["episode"])
    for name, column in (("state", names[state]), ("action", names["action"])):
        found[name] = _point(row, column)
    found |= {"reward": None, "done": None}
    if outcomes:
        found |= {"reward": number_in(row, names["reward"]), "done": _done(row, names["done"])}
    found["dataset"] = ONLY if row.get(names["dataset"]) in (None, "") else name_in(row, names["dataset"])
    return found


def _done(row: Mapping[str, Any], column: str) -> bool | None:
    return None if row.get(column) in (None, "") else flag_in(row, column)


def _point(row: Mapping[str, Any], column: str) -> str | tuple[float, ...]:
    """Returns a text, or the coordinates of a number or a list of numbers, which a text may hold."""
    value = row.get(column)
    if value is None or value == "":
        raise MetricDataError(f"column {column!r} is missing: text, a number or a list of numbers")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value).strip()
        if isinstance(value, str):
            return value
    try:
        point = np.asarray(value, float).reshape(-1)
    except (TypeError, ValueError):
        point = np.zeros(0)
    if not point.size or not np.isfinite(point).all() or isinstance(value, Mapping):
        raise MetricDataError(f"{column} must be text, a finite number or a list of them, found {value!r:.60}")
    return tuple(point.tolist())


def logged_transitions(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> LoggedTransitions:
    """Assembles transitions from rows in any order.

    Raises:
        MetricDataError: rows whose states or actions are not alike, a column that only some rows have, or as
            `LoggedTransitions`.
    """
    numbered = list(rows)
    if not numbered:
        raise MetricDataError("the file has no transitions; give one a row")
    if problems := unlike_rows(numbered):
        raise MetricDataError(f"row {min(problems)}: {problems[min(problems)]}")
    found = [row for _, row in numbered]
    columns: dict[str, Any] = {name: [row[name] for row in found] for name in found[0]}
    columns |= {name: None for name in ("reward", "done") if columns[name][0] is None}
    return LoggedTransitions(**columns, place=[place for place, _ in numbered])


def unlike_rows(rows: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[int, str]:
    """Returns a sentence on each row, by number, that has other columns than most rows."""
    shapes = [tuple(_kind(name, row[name]) for name in ("state", "action", "reward", "done")) for _, row in rows]
    usual = collections.Counter(shapes).most_common(1)[0][0]
    example = rows[shapes.index(usual)][0]
    found: dict[int, str] = {}
    for (place, _), shape in zip(rows, shapes, strict=True):
        if shape == usual:
            continue
        name, kind, other = next(
            (name, a, b)
            for name, a, b in zip(("state", "action", "reward", "done"), shape, usual, strict=True)
            if a != b
        )
        if name in ("state", "action"):
            found[place] = f"{name} has {kind}, and that of row {example} has {other}"
        else:
            found[place] = f"{name} is given in some rows only; give it in every row or in none"
    return found


def _kind(name: str, point: Any) -> str:
    if name in ("reward", "done"):
        return "nothing" if point is None else "a value"
    return "text" if isinstance(point, str) else f"{len(point)} number{'s' if len(point) > 1 else ''}"


TRANSITION_LOG_ROWS = RowFormat(
    "a log of transitions",
    ("episode", "step", "state", "action", "reward", "done", "dataset"),
    functools.partial(transition_row, "state", True),
    logged_transitions,
)
DEMONSTRATION_ROWS = RowFormat(
    "demonstrations",
    ("episode", "step", "observation", "action", "dataset"),
    functools.partial(transition_row, "observation", False),
    logged_transitions,
)
