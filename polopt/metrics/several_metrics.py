"""Several metrics of the same policies: the front of those that no other one dominates, and how metrics conflict."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names

Numbers = NDArray[np.float64]
COLUMNS = ("policy", "step", "stage")


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyMetrics:
    """N policies with several metrics each. policy: names, [N]. values: by the metric's name, [N], NaN where it was not
    measured.

    Raises:
        MetricDataError: no rows or no metrics, arrays of different lengths, or a policy that is there twice.
    """

    policy: Any
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        names = np.asarray([str(name) for name in self.policy], str)
        object.__setattr__(self, "policy", names)
        object.__setattr__(self, "values", {name: np.asarray(x, float) for name, x in sorted(self.values.items())})
        shapes = {name: x.shape for name, x in self.values.items()}
        if not len(names) or not shapes or any(shape != names.shape for shape in shapes.values()):
            raise MetricDataError(
                f"PolicyMetrics: give policies [N], N >= 1, and one metric or more of the same length, found "
                f"{len(names)} policies and {shapes or 'no metrics'}"
            )
        counted = dict(zip(*np.unique(names, return_counts=True), strict=True))
        if twice := [str(name) for name, count in counted.items() if count > 1]:
            raise MetricDataError(f"policy {twice[0]!r:.60} has several rows; average its seeds, or name them apart")

    def __len__(self) -> int:
        return len(self.policy)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> PolicyMetrics:
        return PolicyMetrics(self.policy[rows], {name: x[rows] for name, x in self.values.items()})


def pareto_front(values: ArrayLike) -> NDArray[np.bool_]:
    """Returns which policies no other one dominates: is as good in every metric and better in one. values: [N, M], the
    higher the better."""
    x = np.asarray(values, float)
    return np.array([not ((x >= row).all(1) & (x > row).any(1)).any() for row in x], bool)


def hypervolume(values: ArrayLike) -> float:
    """Returns the volume of [0, 1]^M that is dominated by points [N, M] of it, exactly: by slices along the last
    metric, at a cost of N^(M - 1)."""
    x = np.asarray(values, float)
    if x.shape[1] == 1:
        return float(x.max(initial=0.0))
    total, levels = 0.0, np.unique(np.append(x[:, -1], 0.0))
    for low, high in itertools.pairwise(levels.tolist()):
        above = x[x[:, -1] >= high, :-1]
        total += (high - low) * hypervolume(above[pareto_front(above)])
    return total


def regret_matrix(values: ArrayLike) -> Numbers:
    """Returns the normalised regret of optimising metric i and measuring metric j, [M, M]:

        (max_n v_nj - v_mj) / (max_n v_nj - min_n v_nj),    m = argmax_n v_ni,

    of several best policies m the one that is worst in j. 0 for a metric that never varies. values: [N, M].
    """
    x = np.asarray(values, float)
    spread = x.max(0) - x.min(0)
    found = np.zeros((x.shape[1], x.shape[1]))
    for i in range(x.shape[1]):
        chosen = x[x[:, i] == x[:, i].max()].min(0)
        found[i] = np.where(spread > 0, (x.max(0) - chosen) / np.where(spread > 0, spread, 1.0), 0.0)
    return found


def resampled_tau(one: ArrayLike, other: ArrayLike, resamples: int, seed: int = 0) -> Numbers:
    """Returns Kendall's tau-b of bootstrap samples of the rows of two lists [N], [resamples]; not a number where a
    sample does not vary."""
    a, b = np.asarray(one, float), np.asarray(other, float)
    x, y = np.sign(a[:, None] - a), np.sign(b[:, None] - b)
    draw = np.random.default_rng(seed)
    counts = draw.multinomial(len(a), np.full(len(a), 1 / len(a)), resamples).astype(float)

    def paired(matrix: Numbers) -> Numbers:
        return np.asarray(((counts @ matrix) * counts).sum(-1))

    norm = np.sqrt(paired(x * x) * paired(y * y))
    return np.where(norm > 0, paired(x * y) / np.where(norm > 0, norm, 1.0), np.nan)


def policy_metrics_row(
    row: Mapping[str, Any], columns: Mapping[str, str] | None = None
) -> tuple[str, dict[str, float]]:
    """Checks a policy of a file: its name, `policy`, or `step` and `stage` of a run's metrics.jsonl; every other column
    that is a finite number is a metric.

    Raises:
        MetricDataError: no name, or no number.
    """
    names = column_names(COLUMNS, columns)
    given = [row[names[name]] for name in COLUMNS if row.get(names[name]) not in (None, "")]
    if not given:
        raise MetricDataError(f"columns {names['policy']!r} and {names['step']!r} are missing: a policy's name")
    name = str(given[0]) if row.get(names["policy"]) not in (None, "") else " ".join(map(str, given))
    found = {}
    for key, value in row.items():
        if key in names.values() or isinstance(value, bool) or value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if math.isfinite(number):
            found[str(key)] = number
    if not found:
        raise MetricDataError(f"policy {name!r:.60} has no number; give a column for each metric")
    return name, found


def policy_metrics(rows: Iterable[tuple[int, tuple[str, Mapping[str, float]]]]) -> PolicyMetrics:
    """Assembles policies.

    Raises:
        MetricDataError: as `PolicyMetrics`.
    """
    found = [row for _, row in rows]
    names = sorted({name for _, values in found for name in values})
    return PolicyMetrics(
        [policy for policy, _ in found],
        {name: [values.get(name, math.nan) for _, values in found] for name in names},
    )


POLICY_METRIC_ROWS = RowFormat("metrics of policies", COLUMNS, policy_metrics_row, policy_metrics)
