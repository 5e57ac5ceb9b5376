"""The fit finds what made the numbers; the calibration that comes with polopt is the one in the benchmarks."""

import json
import math
import random
from pathlib import Path
from statistics import median

import pytest

from polopt.plan import efficiency, fit
from polopt.plan.efficiency import Efficiency
from polopt.plan.hardware import Device
from polopt.plan.memory_budget import memory_budgets
from polopt.training.calibrate import grid

DEVICE = Device(
    name="cpu", kind="cpu", flops={"float32": 5e10}, memory=2e10, bandwidth=1e10, cache=2**24, cache_bandwidth=4e10
)
TRUE = Efficiency(learn=0.6, decode=0.3, memory=0.7, call=3e-4, touch=5.0, token=4e-5, step=0.01)
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "plan.json"


def measured(noise: float) -> list[fit.Point]:
    chance, points = random.Random(0), []
    for name, config, settings in list(grid())[::4]:
        lengths = [
            min(settings["limit"], 1 + int(chance.expovariate(1 / settings["mean"]))) for _ in range(settings["rows"])
        ]
        bare = fit.Point(name, config, settings, lengths, {}, 0.0)
        job = bare.job(DEVICE)
        seconds = {k: v * math.exp(chance.gauss(0, noise)) for k, v in fit.predicted_seconds(job, TRUE).items()}
        budget = memory_budgets(job)["device"]
        points.append(fit.Point(name, config, settings, lengths, seconds, budget.peak - budget.always["weights"] + 5e6))
    return points


def test_what_is_left_out_is_foretold():
    exact = fit.fitted(measured(0.0), DEVICE, {"machine": "none", "date": "2026-01-01"})
    assert exact["error"]["step"]["worst"] < 0.1
    assert exact["error"]["memory"]["worst"] < 1e-6
    assert exact["device"]["held"] == pytest.approx(5e6)
    found = efficiency.of_record(exact)
    assert found.time == 1 + exact["error"]["step"]["worst"]
    assert "calibrated on none, 2026-01-01, 6 configurations" in found.provenance


def test_noise_is_seen_as_error():
    points = measured(0.4)
    jobs = [point.job(DEVICE) for point in points]
    eff = fit.fit(jobs, points)
    off = [
        abs(math.log(fit.predicted_seconds(j, eff)["step"] / p.seconds["step"]))
        for j, p in zip(jobs, points, strict=True)
    ]
    assert 0.1 < median(off) < 0.8


def test_the_calibration_that_is_shipped_is_the_benchmarks():
    (shipped,) = efficiency.records()
    whole = json.loads(RESULTS.read_text())
    assert shipped == {name: whole[name] for name in shipped}
    for name, error in shipped["error"].items():
        off = [p["foretold"][name] / p["measured"][name] for p in whole["points"]]
        off = [max(x, 1 / x) - 1 for x in off]
        assert error == pytest.approx({"median": median(off), "worst": max(off)})
    assert shipped["about"]["configurations"] == len(whole["points"]) == len(whole["raw"])


def test_a_point_is_asked_for_as_a_person_would():
    point = measured(0.0)[0]
    job = point.job(DEVICE)
    assert job.batch.mean == pytest.approx(sum(point.lengths) / len(point.lengths), rel=0.05)
    assert job.batch.lengths != tuple(sorted(point.lengths))
