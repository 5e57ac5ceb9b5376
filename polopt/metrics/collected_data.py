"""Policies trained on data of several sizes: environments, objects, demonstrations, and success on unseen ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]
SIZES = ("environments", "objects", "demonstrations")
COLUMNS = (*SIZES, "successes", "trials", "score")


@dataclasses.dataclass(frozen=True, eq=False)
class CollectedData:
    """N trained policies; arrays or lists, [N] each.

    environments, objects: in how many environments, with how many objects the data were collected; 1 where None.
    demonstrations: of each environment and object; 1 where None. successes: of the trials, in environments and with
    objects that the data do not have; means of partial scores times trials count as successes. trials: of the policy.

    Raises:
        MetricDataError: arrays of different lengths or without rows, sizes or trials that are not whole numbers >= 1,
            successes outside 0..trials.
    """

    successes: Any
    trials: Any
    environments: Any = None
    objects: Any = None
    demonstrations: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.successes)))
        for name in (*SIZES, "successes", "trials"):
            given = getattr(self, name)
            object.__setattr__(self, name, np.asarray(np.ones(n) if given is None else given, float))
        shapes = {name: getattr(self, name).shape for name in (*SIZES, "successes", "trials")}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"CollectedData: every column must be [N] with N >= 1, found {shapes}")
        for name in (*SIZES, "trials"):
            values = getattr(self, name)
            bad = ~(np.isfinite(values) & (values >= 1) & (values == np.floor(values)))
            if bad.any():
                raise MetricDataError(f"CollectedData: {name} must be whole numbers >= 1, found {values[bad][0]:g}")
        if not ((self.successes >= 0) & (self.successes <= self.trials)).all():
            raise MetricDataError("CollectedData: successes must be from 0 to trials")

    def __len__(self) -> int:
        return len(self.successes)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> CollectedData:
        return CollectedData(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def curves(self, least: int = 3) -> dict[str, tuple[Numbers, NDArray[np.int_]]]:
        """Returns the sizes and the rows of each curve: what alone differs between its rows, in `least` sizes or more.

        Curves are named by what differs, "environments", "objects", "demonstrations", or "environments and objects"
        where there are as many of both, and, if there are several, by what is fixed.
        """
        found: dict[str, list[tuple[str, Numbers, NDArray[np.int_]]]] = {}
        sizes = np.stack([getattr(self, name) for name in SIZES], 1)
        axes = {name: [i] for i, name in enumerate(SIZES)}
        axes["environments and objects"] = [0, 1]
        for name, own in axes.items():
            fixed = [i for i in range(3) if i not in own]
            allowed = sizes[:, 0] == sizes[:, 1] if len(own) > 1 else np.ones(len(self), bool)
            for key in sorted({tuple(row) for row in sizes[allowed][:, fixed].tolist()}):
                rows = np.flatnonzero(allowed & (sizes[:, fixed] == key).all(1))
                rows = rows[np.lexsort([self.successes[rows], self.trials[rows], sizes[rows, own[0]]])]
                if len(np.unique(sizes[rows, own[0]])) >= least:
                    what = ", ".join(f"{SIZES[i]} {value:g}" for i, value in zip(fixed, key, strict=True))
                    found.setdefault(name, []).append((what, sizes[rows, own[0]], rows))
        return {
            name if len(of) == 1 else f"{name} ({what})": (size, rows)
            for name, of in found.items()
            for what, size, rows in of
        }


def collected_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, float]:
    """Checks a policy of a file: `trials` and `successes`, or `score`, the mean success in [0, 1]; sizes that are
    missing are 1.

    Raises:
        MetricDataError: a column that is missing, no whole number >= 1, successes or a score out of range.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, float] = {}
    for name in (*SIZES, "trials"):
        value = number_in(row, names[name], required=name == "trials")
        if value is not None and not (value >= 1 and value == int(value)):
            raise MetricDataError(f"{names[name]} must be a whole number >= 1, found {value:g}")
        found[name] = 1.0 if value is None else value
    successes, score = (number_in(row, names[name], required=False) for name in ("successes", "score"))
    if (successes is None) == (score is None):
        raise MetricDataError(f"give {names['successes']} or {names['score']}, one of them, of {names['trials']}")
    if score is not None and not 0 <= score <= 1:
        raise MetricDataError(f"{names['score']} must lie in [0, 1], found {score:g}")
    total = found["trials"]
    found["successes"] = score * total if score is not None else float(successes or 0.0)
    if not 0 <= found["successes"] <= total:
        raise MetricDataError(
            f"{names['successes']} must be from 0 to {names['trials']} = {total:g}, found {found['successes']:g}"
        )
    return found


def collected_data(rows: Iterable[tuple[int, Mapping[str, float]]]) -> CollectedData:
    """Assembles policies.

    Raises:
        MetricDataError: as `CollectedData`.
    """
    found = [row for _, row in rows]
    return CollectedData(**{name: [row[name] for row in found] for name in (*SIZES, "successes", "trials")})


DATA_ROWS = RowFormat("policies by the size of their data", COLUMNS, collected_row, collected_data)
