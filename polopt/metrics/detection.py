"""Scores of detectors of policy violations: accuracy, F1 and time, over all and by domain."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.classification import f1_score
from polopt.metrics.intervals import Interval
from polopt.metrics.metric import Measured, Metric
from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, flag_in, number_in

Numbers = NDArray[np.float64]
COLUMNS = ("violated", "probability", "seconds", "domain", "trajectory")


class DetectedViolations:
    """N detections, [N] each.

    violated: the label. probability: of a violation, by the detector. seconds: that it took, None if unknown. domain,
    trajectory: names; pairs of one trajectory are dependent, those without a name are of trajectories of their own.

    Raises:
        MetricDataError: columns of different lengths or without rows, or a probability outside [0, 1].
    """

    def __init__(
        self, violated: Any, probability: Any, seconds: Any = None, domain: Any = None, trajectory: Any = None
    ) -> None:
        self.violated, self.probability = np.asarray(violated, bool), np.asarray(probability, float)
        n = self.violated.size
        self.seconds = None if seconds is None else np.asarray(seconds, float)
        self.domain = np.asarray([""] * n if domain is None else domain, str)
        self.trajectory = np.asarray([str(i) for i in range(n)] if trajectory is None else trajectory, str)
        shapes = {name: x.shape for name in COLUMNS if (x := getattr(self, name)) is not None}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"DetectedViolations: every column must be [N] with N >= 1, found {shapes}")
        if not ((self.probability >= 0) & (self.probability <= 1)).all():
            raise MetricDataError("DetectedViolations: probability must be in [0, 1]")
        if self.seconds is not None and not (np.isfinite(self.seconds) & (self.seconds >= 0)).all():
            raise MetricDataError("DetectedViolations: seconds must be finite and >= 0")

    def __len__(self) -> int:
        return len(self.violated)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> DetectedViolations:
        found = {name: getattr(self, name) for name in COLUMNS}
        return DetectedViolations(**{name: None if x is None else x[rows] for name, x in found.items()})


def detected_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one detection of a file.

    Raises:
        MetricDataError: a label that is neither true nor false, or numbers out of range.
    """
    names = column_names(COLUMNS, columns)
    probability = number_in(row, names["probability"])
    seconds = number_in(row, names["seconds"], required=False)
    if probability is None or not 0 <= probability <= 1:
        raise MetricDataError(f"{names['probability']} must be in [0, 1], found {probability}")
    if seconds is not None and seconds < 0:
        raise MetricDataError(f"{names['seconds']} must be >= 0, found {seconds}")
    found = {"violated": flag_in(row, names["violated"]), "probability": probability, "seconds": seconds}
    return found | {name: row.get(names[name]) for name in ("domain", "trajectory")}


def detected_violations(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> DetectedViolations:
    """Assembles detections.

    Raises:
        MetricDataError: a column that only some of the rows have.
    """
    found = list(rows)
    table: dict[str, list[Any] | None] = {}
    for name in COLUMNS:
        values = [row[name] for _, row in found]
        empty = [number for number, row in found if row[name] in (None, "")]
        if empty and len(empty) < len(found):
            raise MetricDataError(f"row {empty[0]}: {name} is empty, and other rows have it; fill or drop the column")
        table[name] = None if empty else values
    return DetectedViolations(**table)


DETECTION_ROWS = RowFormat("detected violations", COLUMNS, detected_row, detected_violations)


class ViolationDetection(Metric):
    """Scores a detector, over all rows and by domain; a violation is the positive class.

        accuracy,   F1 = 2 TP / (2 TP + FP + FN),   F1 per second = F1 / mean seconds

    Beside them the share of violations, and what the better of the two constant answers scores. Intervals are
    percentiles of a bootstrap over trajectories.

    threshold: the probability from which on a violation is reported. level: of the intervals. resamples, seed: of the
    bootstrap.
    """

    threshold: float = 0.5
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    rows = DETECTION_ROWS

    def setup(self) -> None:
        if not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                f"ViolationDetection: level in (0, 1) and resamples >= 1, found {self.level}, {self.resamples}"
            )

    def measure(self, data: DetectedViolations) -> Measured:
        values, intervals = self._scores(data)
        domains = sorted(set(data.domain.tolist()))
        for domain in domains if len(domains) > 1 else ():
            own_values, own_intervals = self._scores(data[np.flatnonzero(data.domain == domain)])
            values |= {f"{domain}, {name}": x for name, x in own_values.items()}
            intervals |= {f"{domain}, {name}": x for name, x in own_intervals.items()}
        right = (data.probability >= self.threshold) == data.violated
        cautions = []
        if values["F1"] <= values["F1 of a constant"]:
            cautions.append("F1 is no better than that of a constant answer")
        return Measured(values, intervals, {"correct": right.astype(float)}, tuple(cautions))

    def _scores(self, data: DetectedViolations) -> tuple[dict[str, float], dict[str, Interval]]:
        names, unit = np.unique(data.trajectory, return_inverse=True)
        reported = data.probability >= self.threshold
        kinds = [reported & data.violated, reported & ~data.violated, ~reported & data.violated, ~reported]
        seconds = np.zeros(len(data)) if data.seconds is None else data.seconds
        columns = [*(k.astype(float) for k in kinds), np.ones(len(data)), seconds]
        counts = np.stack([np.bincount(unit, weights=x, minlength=len(names)) for x in columns], -1)
        draw = np.random.default_rng(self.seed)
        chosen = draw.multinomial(len(names), np.full(len(names), 1 / len(names)), size=self.resamples)
        point, resampled = self._of_counts(counts.sum(0)), self._of_counts(chosen.astype(float) @ counts)
        estimated = ("accuracy", "F1", *(("seconds", "F1 per second") if data.seconds is not None else ()))
        values = {name: float(point[name]) for name in estimated}
        intervals = {}
        for name in estimated:
            low, high = np.nanquantile(resampled[name], [(1 - self.level) / 2, (1 + self.level) / 2])
            intervals[name] = Interval(values[name], float(low), float(high), self.level, len(names))
        p = float(data.violated.mean())
        values |= {"violations": p, "F1 of a constant": 2 * p / (1 + p), "accuracy of a constant": max(p, 1 - p)}
        return values, intervals

    @staticmethod
    def _of_counts(counts: Numbers) -> dict[str, Numbers]:
        tp, fp, fn, negative, n, seconds = np.moveaxis(counts, -1, 0)
        f1, mean = f1_score(tp, fp, fn), seconds / n
        rate = np.divide(f1, mean, out=np.full(mean.shape, np.nan), where=mean > 0)
        return {"accuracy": (tp + negative - fn) / n, "F1": f1, "seconds": mean, "F1 per second": rate}


def timed_detections(
    detector: Callable[[str, Sequence[str]], float], examples: Iterable[tuple[str, Sequence[str], bool]]
) -> DetectedViolations:
    """Runs a detector on policies, steps and labels, one by one, and measures its seconds."""
    found = []
    for policy, steps, violated in examples:
        start = time.perf_counter()
        probability = float(detector(policy, steps))
        found.append((violated, probability, time.perf_counter() - start))
    violations, probabilities, seconds = zip(*found, strict=True) if found else ((), (), ())
    return DetectedViolations(violations, probabilities, seconds)
