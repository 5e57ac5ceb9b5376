"""Frontiers of preference optimisation: the win rate that a way of training reaches within a KL from its reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]
COLUMNS = ("source", "kl", "win_rate", "step", "run", "accuracy")


@dataclasses.dataclass(frozen=True, eq=False)
class FrontierCurves:
    """N evaluations of policies in training; arrays or lists, [N] each.

    source: what each was trained on, in words. kl: KL(policy || reference) in nats per answer, estimated on the
    policy's own answers. win_rate: against the reference's answers or other fixed ones, by a judge from whose labels
    nothing was trained. step: of training, None where unknown. run: of which training run, as a seed; runs of the same
    name in two sources are compared with each other. accuracy: the fraction of a fixed set of labelled pairs whose
    preferred answer has the higher implicit reward, None or NaN where unknown.

    Raises:
        MetricDataError: arrays of different lengths or without rows, a KL below 0, a rate outside [0, 1].
    """

    source: Any
    kl: Any
    win_rate: Any
    step: Any = None
    run: Any = None
    accuracy: Any = None

    def __post_init__(self) -> None:
        names = np.asarray(self.source, dtype=str)
        n = len(names) if names.ndim == 1 else 0
        if not n:
            raise MetricDataError("FrontierCurves: give the source of one evaluation or more, [N]")
        object.__setattr__(self, "source", names)
        run = np.asarray(["0"] * n if self.run is None else [str(x) for x in self.run])
        object.__setattr__(self, "run", run)
        found = {"kl": self.kl, "win_rate": self.win_rate, "step": self.step, "accuracy": self.accuracy}
        for name, value in found.items():
            values = np.full(n, np.nan) if value is None else np.asarray(value, float)
            if values.shape != (n,) or len(run) != n:
                raise MetricDataError(f"FrontierCurves: {name} and run must be {[n]}, as source")
            object.__setattr__(self, name, values)
            required = name in ("kl", "win_rate")
            rate = name in ("win_rate", "accuracy")
            bad = ~np.isfinite(values) if required else np.zeros(n, bool)
            with np.errstate(invalid="ignore"):
                bad |= (values < 0) & (name != "step")
                bad |= (values > 1) & rate
            if bad.any():
                limits = "in [0, 1]" if rate else "finite and >= 0; of a noisy estimate take one that is, as k3"
                raise MetricDataError(f"FrontierCurves: {name} must be {limits}, found {values[bad][0]:g}")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> FrontierCurves:
        return FrontierCurves(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def runs(self, source: str) -> dict[str, FrontierCurves]:
        """Returns the evaluations of each run of a source, by KL and then by win rate."""
        found = {}
        for run in sorted(set(self.run[self.source == source].tolist())):
            rows = np.flatnonzero((self.source == source) & (self.run == run))
            found[run] = self[rows[np.lexsort([self.win_rate[rows], self.kl[rows]])]]
        return found


def frontier(kl: ArrayLike, win_rate: ArrayLike, at: ArrayLike) -> Numbers:
    """Returns the best win rate within each KL of `at` [K]: the largest of the points of at most that KL, and of those
    on the straight lines between the points of this envelope; NaN before the first point, and beyond the last one its
    value.

    kl, win_rate: [n], in any order.
    """
    x, y, k = (np.asarray(v, float) for v in (kl, win_rate, at))
    order = np.lexsort([y, x])
    x, y = x[order], np.maximum.accumulate(y[order])
    last = np.append(x[1:] != x[:-1], True)  # the best of points of one KL
    found: Numbers = np.interp(k, x[last], y[last])
    return np.where(k < x[0], np.nan, found)


def frontier_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks an evaluation of a file: `source` is a name, `kl` and `win_rate` numbers; `step`, `run` and `accuracy` may
    be missing.

    Raises:
        MetricDataError: a column that is missing, or no number.
    """
    names = column_names(COLUMNS, columns)
    source = row.get(names["source"])
    if source is None or str(source).strip() == "":
        raise MetricDataError(f"column {names['source']!r} is missing: the name of what the policy was trained on")
    run = row.get(names["run"])
    found: dict[str, Any] = {"source": str(source).strip(), "run": "0" if run in (None, "") else str(run)}
    for name in ("kl", "win_rate", "step", "accuracy"):
        value = number_in(row, names[name], required=name in ("kl", "win_rate"))
        found[name] = float("nan") if value is None else value
    return found


def frontier_curves(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> FrontierCurves:
    """Assembles evaluations.

    Raises:
        MetricDataError: as `FrontierCurves`.
    """
    found = [row for _, row in rows]
    return FrontierCurves(**{name: [row[name] for row in found] for name in COLUMNS})


FRONTIER_ROWS = RowFormat("evaluations of win rate and KL", COLUMNS, frontier_row, frontier_curves)
