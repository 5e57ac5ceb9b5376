"""Efficiencies fitted to measured steps, and their prediction errors on held-out configurations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from polopt.plan.efficiency import Efficiency
from polopt.plan.hardware import Device
from polopt.plan.job import PlannedJob
from polopt.plan.lengths import typical
from polopt.plan.memory_budget import memory_budgets
from polopt.plan.predict import SAMPLING, phases
from polopt.plan.requirements import MethodRequirements
from polopt.plan.shape import shape_of

# Typical relative error of a measure.
EXPECTED = 0.2
# The fitted parameters, each with its prior value and the width of the prior in e-foldings, relative to a typical
# error:
# the prior matters only where the data do not determine a parameter.
BEGIN = {
    "learn": (0.5, 3.0),
    "decode": (0.4, 3.0),
    "memory": (0.5, 2.0),
    "call": (1e-4, 5.0),
    "touch": (3.0, 3.0),
    "token": (1e-5, 5.0),
    "step": (2e-3, 5.0),
}
MEASURES = ("rollout", "learn", "step")


@dataclasses.dataclass(frozen=True)
class Point:
    """A measured configuration. seconds: of "rollout", "learn" and the whole "step". peak: bytes that training took
    in addition to the libraries. lengths: of the batch's answers."""

    name: str
    config: Mapping[str, Any]
    settings: Mapping[str, Any]
    lengths: Sequence[int]
    seconds: Mapping[str, float]
    peak: float

    def job(self, device: Device) -> PlannedJob:
        """Returns the job as a user would describe it: by mean, spread and limit of the answers, not by each one's
        length.
        """
        n, limit = self.lengths, float(self.settings["limit"])
        mean = sum(n) / len(n)
        spread = math.sqrt(sum((x - mean) ** 2 for x in n) / len(n)) / mean
        rows, group = self.settings["rows"], self.settings["group"]
        return PlannedJob(
            shape=shape_of(self.config),
            device=device,
            demands=MethodRequirements(group=group),
            rows=rows,
            group=group,
            prompt=self.settings["prompt"],
            answer=mean,
            limit=limit,
            lengths=typical(rows, mean, limit, spread),
            micro_rows=self.settings["micro_rows"],
            checkpointing=self.settings.get("checkpointing", False),
            dtype="float32",
            engine="native",
        )


def predicted_seconds(job: PlannedJob, eff: Efficiency) -> dict[str, float]:
    """Predicts the seconds of the measures."""
    found, _ = phases(job, eff, memory_budgets(job))
    sampled = sum(value for name, value in found.items() if name in SAMPLING)
    return {"rollout": sampled, "learn": sum(found.values()) - sampled - eff.step, "step": sum(found.values())}


def fit(jobs: Sequence[PlannedJob], points: Sequence[Point]) -> Efficiency:
    """Fits the efficiencies by least squares of log(predicted / measured), a step's error weighted like its parts'."""
    import numpy as np
    from scipy.optimize import least_squares

    begin = np.log([value for value, _ in BEGIN.values()])
    widths = np.array([width for _, width in BEGIN.values()])

    def residuals(x: Any) -> Any:
        eff = Efficiency(**dict(zip(BEGIN, np.exp(x).tolist(), strict=True)))
        off = [
            math.log(found[name] / point.seconds[name]) / EXPECTED
            for found, point in zip((predicted_seconds(job, eff) for job in jobs), points, strict=True)
            for name in MEASURES
        ]
        return np.concatenate([off, (x - begin) / widths])

    # No share is above 1.
    most = np.array([0.0 if name in ("learn", "decode", "memory") else np.inf for name in BEGIN])
    found = least_squares(residuals, begin, bounds=(np.full(len(BEGIN), -np.inf), most), loss="soft_l1", max_nfev=40)
    return Efficiency(**dict(zip(BEGIN, np.exp(found.x).tolist(), strict=True)))


def fitted(points: Sequence[Point], device: Device, about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the contents of a calibration file: `efficiency` of all points; `error`, the leave-one-out prediction
    error of each measure and of memory, relative to the measured value; and the points with both."""
    jobs = [point.job(device) for point in points]
    rows: list[dict[str, Any]] = []
    for i, point in enumerate(points):
        eff = fit(jobs[:i] + jobs[i + 1 :], [*points[:i], *points[i + 1 :]])
        found = predicted_seconds(jobs[i], eff)
        record = {"name": point.name, "foretold": found, "measured": dict(point.seconds)}
        rows.append(record | {"peak": point.peak, "tokens": jobs[i].batch.tokens})
    extra = median(max(0.0, p.peak - _bytes(job)) for job, p in zip(jobs, points, strict=True))
    for i, row in enumerate(rows):
        others = [max(0.0, p.peak - _bytes(j)) for n, (j, p) in enumerate(zip(jobs, points, strict=True)) if n != i]
        row["foretold"]["memory"] = _bytes(jobs[i]) + median(others)
        row["measured"]["memory"] = points[i].peak
    return {
        "about": dict(about) | {"configurations": len(points)},
        "device": {**device.model_dump(exclude={"note"}), "held": extra},
        "efficiency": dataclasses.asdict(fit(jobs, points)),
        "error": {name: _error(rows, name) for name in (*MEASURES, "memory")},
        "points": rows,
    }


def _bytes(job: PlannedJob) -> float:
    """Bytes of training as measured, without those of the model's weights, which were allocated before."""
    budget = memory_budgets(job)["device"]
    return budget.peak - budget.always["weights"]


def _error(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    """Median and maximum of the ratio of prediction and measurement, the larger over the smaller, minus 1."""
    off = [math.exp(abs(math.log(r["foretold"][name] / r["measured"][name]))) - 1 for r in rows]
    return {"median": median(off), "worst": max(off)}
