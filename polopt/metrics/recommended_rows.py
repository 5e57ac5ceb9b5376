"""Rows of recommendations: items that were ranked for users, and what is known of their relevance."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, name_in, number_in

Numbers = NDArray[np.float64]
OPTIONAL = ("prediction", "propensity", "popularity", "features")
COLUMNS = ("user", "item", "score", "rank", "relevance", *OPTIONAL)


@dataclasses.dataclass(frozen=True, eq=False)
class Recommendations:
    """N items that were ranked for users; arrays or lists, [N] each.

    user, item: names. score: the higher, the earlier in the user's list. relevance: >= 0, or a click, or a rate of
    clicks. prediction: of the relevance. propensity: probability in (0, 1] that the relevance was seen, such as that of
    the item's position to be examined. popularity: the item's share in (0, 1], of users or of interactions. features:
    [N, D] of the item.

    Raises:
        MetricDataError: arrays of different lengths or without rows, an item that a user has twice, or numbers that are
            not finite or out of their range.
    """

    user: Any
    item: Any
    score: Any
    relevance: Any
    prediction: Any = None
    propensity: Any = None
    popularity: Any = None
    features: Any = None

    def __post_init__(self) -> None:
        for name in ("user", "item"):
            object.__setattr__(self, name, np.array([str(x) for x in np.atleast_1d(np.asarray(getattr(self, name)))]))
        numbers = [name for name in ("score", "relevance", *OPTIONAL) if getattr(self, name) is not None]
        for name in numbers:
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        n = len(self.user)
        shapes = {name: getattr(self, name).shape for name in ("user", "item", *numbers)}
        good = {name: (n,) if name != "features" else (n, *shapes[name][1:2]) for name in shapes}
        if not n or shapes != good or len(shapes.get("features", (1, 1))) != 2:
            raise MetricDataError(
                f"Recommendations: all must be [N] with N >= 1, features [N, D], found "
                f"{ {name: list(shape) for name, shape in shapes.items()} }"
            )
        for name in numbers:
            x = getattr(self, name)
            if not np.isfinite(x).all():
                raise MetricDataError(f"Recommendations: {name} must be finite, found {x[~np.isfinite(x)][0]}")
        if (self.relevance < 0).any():
            raise MetricDataError(f"Recommendations: relevance must be >= 0, found {self.relevance.min():g}")
        for name in ("propensity", "popularity"):
            x = getattr(self, name)
            if x is not None and ((x <= 0) | (x > 1)).any():
                raise MetricDataError(f"Recommendations: {name} must be in (0, 1], found {x[(x <= 0) | (x > 1)][0]:g}")
        self._check_pairs()

    def _check_pairs(self) -> None:
        order = np.lexsort([self.item, self.user])
        same = (self.user[order][1:] == self.user[order][:-1]) & (self.item[order][1:] == self.item[order][:-1])
        if same.any():
            row = order[int(same.argmax())]
            raise MetricDataError(
                f"Recommendations: user {str(self.user[row])!r:.60} has item {str(self.item[row])!r:.60} twice; give "
                "each one row"
            )

    def __len__(self) -> int:
        return len(self.user)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> Recommendations:
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Recommendations(**{name: None if x is None else x[rows] for name, x in found.items()})

    def lists(self) -> list[NDArray[np.int64]]:
        """Returns each user's rows, the highest score first, equal ones by the item's name; users by name."""
        order = np.lexsort([self.item, -self.score, self.user])
        ends = np.flatnonzero(self.user[order][1:] != self.user[order][:-1]) + 1
        return np.split(order, ends)


def recommended_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one recommended item of a file.

    Raises:
        MetricDataError: a column that is missing, no number, a row with both or neither of score and rank, or features
            that are not a list of numbers.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, Any] = {}
    found |= {name: name_in(row, names[name]) for name in ("user", "item")}
    score, rank = (number_in(row, names[name], required=False) for name in ("score", "rank"))
    if (score is None) == (rank is None):
        raise MetricDataError(
            f"a row has either {names['score']!r}, higher is better, or {names['rank']!r}, lower is better; this one "
            f"has {'neither' if score is None else 'both'}"
        )
    if rank is not None and rank < 1:
        raise MetricDataError(f"{names['rank']} must be >= 1, found {rank:g}")
    found |= {"score": score, "rank": rank, "relevance": number_in(row, names["relevance"])}
    for name in OPTIONAL[:-1]:
        found[name] = number_in(row, names[name], required=False)
    return found | {"features": _features(row.get(names["features"]), names["features"])}


def _features(value: Any, name: str) -> list[float] | None:
    if value is None or value == "":
        return None
    try:
        found = json.loads(value) if isinstance(value, str) else value
        numbers = [float(x) for x in found]
    except (TypeError, ValueError):
        raise MetricDataError(f"{name} must be a list of numbers, found {value!r:.60}") from None
    if not numbers or not np.isfinite(numbers).all():
        raise MetricDataError(f"{name} must be a list of finite numbers, found {value!r:.60}")
    return numbers


def recommendations(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Recommendations:
    """Assembles recommendations.

    Raises:
        MetricDataError: some rows with a rank and others with a score, two items of one rank, a column that only some
            rows have, features of unlike length, or as `Recommendations`.
    """
    numbered = list(rows)
    for name in ("rank", *OPTIONAL):
        without = [number for number, row in numbered if row[name] is None]
        if without and len(without) < len(numbered):
            raise MetricDataError(f"row {without[0]}: {name} is empty; give it in every row or in none")
    found = [row for _, row in numbered]
    if found and found[0]["rank"] is not None:
        known: dict[tuple[str, float], int] = {}
        for number, row in numbered:
            first = known.setdefault((row["user"], row["rank"]), number)
            if first != number:
                raise MetricDataError(
                    f"rows {first} and {number}: user {row['user']!r:.60} has rank {row['rank']:g} twice; rank items "
                    "1, 2, 3, ..., or give scores, where equal ones are averaged over"
                )
    widths = {len(row["features"]): number for number, row in numbered if row["features"] is not None}
    if len(widths) > 1:
        raise MetricDataError(f"row {max(widths.values())}: features have lengths {sorted(widths)}; give all the same")
    score = [row["score"] if row["rank"] is None else -row["rank"] for row in found]
    others = {name: [row[name] for row in found] if found and found[0][name] is not None else None for name in OPTIONAL}
    plain = {name: [row[name] for row in found] for name in ("user", "item", "relevance")}
    return Recommendations(score=score, **plain, **others)


RECOMMENDED_ROWS = RowFormat("items that were ranked for users", COLUMNS, recommended_row, recommendations)
