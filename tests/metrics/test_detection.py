"""Scores of detectors against scikit-learn, and bad rows."""

from __future__ import annotations

import numpy as np
import pytest

from polopt.metrics import DetectedViolations, MetricDataError, ViolationDetection, f1_score, timed_detections
from polopt.metrics.detection import DETECTION_ROWS
from polopt.training.measuring import read_data

sklearn = pytest.importorskip("sklearn.metrics")


def test_scores_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    y, p, domain = draw.random(200) < 0.4, draw.random(200), draw.choice(["map", "shop"], 200)
    found = ViolationDetection(resamples=50)(DetectedViolations(y, p, np.full(200, 0.02), domain))
    for prefix, rows in (("", slice(None)), ("map, ", domain == "map"), ("shop, ", domain == "shop")):
        f1 = sklearn.f1_score(y[rows], p[rows] >= 0.5)
        assert found.values[f"{prefix}F1"] == pytest.approx(f1, rel=1e-12)
        assert found.values[f"{prefix}accuracy"] == pytest.approx(sklearn.accuracy_score(y[rows], p[rows] >= 0.5))
        assert found.values[f"{prefix}F1 per second"] == pytest.approx(f1 / 0.02)
        assert found.intervals[f"{prefix}F1"].low < f1 < found.intervals[f"{prefix}F1"].high
    constant = sklearn.f1_score(y, np.ones(200, bool))
    assert found.values["F1 of a constant"] == pytest.approx(constant)
    assert f1_score(0, 0, 0) == 0


def test_an_interval_is_over_trajectories() -> None:
    """Each pair twenty times: the interval is that of the pairs, not narrower by the root of twenty."""
    draw = np.random.default_rng(1)
    y, p = draw.random(60) < 0.4, draw.random(60)
    names = [str(i) for i in range(60)]
    one = ViolationDetection()(DetectedViolations(y, p, trajectory=names)).intervals["accuracy"]
    many = ViolationDetection()(
        DetectedViolations(np.repeat(y, 20), np.repeat(p, 20), trajectory=np.repeat(names, 20))
    ).intervals["accuracy"]
    assert (many.low, many.high, many.n) == (pytest.approx(one.low), pytest.approx(one.high), 60)


def test_a_detector_is_timed_and_a_constant_one_is_named() -> None:
    data = timed_detections(lambda policy, steps: 1.0, [("p", ["a"], True), ("p", ["b"], False)])
    found = ViolationDetection(resamples=10)(data)
    assert found.values["seconds"] > 0
    assert found.cautions == ("F1 is no better than that of a constant answer",)


def test_rows_at_the_door(tmp_path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("violated,probability,domain\ntrue,0.9,map\nfalse,0.2,\n")
    with pytest.raises(MetricDataError, match="row 3: domain is empty, and other rows have it"):
        read_data(DETECTION_ROWS, file)
    for row, sentence in (
        ({"violated": "maybe", "probability": 0.1}, "violated must be true or false, found 'maybe'"),
        ({"violated": True, "probability": 1.2}, r"probability must be in \[0, 1\], found 1.2"),
        ({"violated": True, "probability": 0.2, "seconds": -1}, "seconds must be >= 0"),
        ({"violated": True}, "'probability' is missing"),
    ):
        with pytest.raises(MetricDataError, match=sentence):
            DETECTION_ROWS.parse(row, None)
    with pytest.raises(MetricDataError, match="every column must be"):
        DetectedViolations([True], [0.1, 0.2])
