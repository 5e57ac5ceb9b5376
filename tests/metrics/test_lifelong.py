"""Metrics of lifelong learning: every number of a small log by hand, scipy's slope, and bad rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.lab.measured import lifelong_measurements
from polopt.methods.l2_lifelong import l2_lifelong
from polopt.metrics import LifelongLog, MetricDataError, MetricError
from polopt.metrics.lifelong import saturation
from polopt.training.measuring import measure


def log_of(*blocks: tuple[str, str, list[float]], experts: tuple[tuple[str, list[float]], ...] = ()) -> LifelongLog:
    rows = [(kind, task, i, e, x, "0") for i, (kind, task, curve) in enumerate(blocks) for e, x in enumerate(curve)]
    rows += [("expert", task, 0, e, x, str(i)) for i, (task, curve) in enumerate(experts) for e, x in enumerate(curve)]
    return LifelongLog(*map(list, zip(*rows, strict=True)))


def test_every_number_by_hand() -> None:
    data = log_of(
        ("eval", "B", [10.0]),
        ("train", "A", [2.0, 4.0]),
        ("eval", "A", [4.0, 6.0]),
        ("eval", "B", [30.0]),
        ("train", "B", [1.0, 9.0]),
        ("eval", "A", [3.0]),
        ("eval", "A", [2.0]),
        ("train", "A", [1.0, 3.9, 4.0, 8.0]),
        ("eval", "A", [8.0]),
        ("eval", "A", [9.0]),
        experts=(("A", [1.0, 2.0, 3.0]), ("A", [4.0])),
    )
    found = l2_lifelong(normalise=False)(data).values
    assert found["PM, A"] == pytest.approx(np.mean([3 - 5, 2 - 5, 9 - 8]))
    assert found["FT, A to B"] == pytest.approx((30 - 10) / 40)
    assert found["BT, B to A"] == pytest.approx((3 - 5) / 8)
    assert found["RP, A"] == pytest.approx(np.mean([(2 + 4 + 1) / 6, 2 / 4]))
    assert found["MTP, A"] == pytest.approx(np.mean([4.0, 8.0]))
    assert found["MEP"] == pytest.approx(np.mean([np.mean([5.0, 3.0, 2.0, 8.0, 9.0]), np.mean([10.0, 30.0])]))
    assert "PR" not in found
    ratio = l2_lifelong(normalise=False, transfer="ratio")(data).values
    assert (ratio["FT, A to B"], ratio["BT, B to A"]) == (pytest.approx(3.0), pytest.approx(0.6))


def test_recovery_is_minus_the_slope_of_theil_and_sen() -> None:
    blocks = [[9.0], [0.0, 1.0, 9.0], [0.0, 9.0], [9.0], [0.0, 0.0]]
    data = log_of(*(("train", "A", curve) for curve in blocks))
    (lifetime,) = data.lifetimes().values()
    times = lifetime.recovery_times("A")
    assert times.tolist() == [2.0, 1.0, 0.0, 3.0]
    assert l2_lifelong(normalise=False)(data).values["PR"] == pytest.approx(-stats.theilslopes(times).slope)
    perfect = log_of(*(("train", "A", [5.0, 5.0]) for _ in range(3)))
    assert l2_lifelong(normalise=False)(perfect).values["PR"] == 0


@pytest.mark.parametrize("length", [3, 14, 15, 30, 57, 700])
def test_the_moving_average_is_of_a_mirrored_curve(length: int) -> None:
    curve = np.random.default_rng(length).normal(size=length)
    width = min(int(0.2 * length), 100)
    smooth = curve
    if width >= 3:

        def mirrored(i: int) -> float:
            return curve[abs(i) if i < length else 2 * (length - 1) - i]

        left = -(-width // 2)
        smooth = np.array([np.mean([mirrored(i - left + j) for j in range(width)]) for i in range(length)])
    top, place = saturation(curve)
    assert top == pytest.approx(smooth.max())
    assert place == int(smooth.argmax())


def test_sample_efficiency() -> None:
    slow, fast = [0.0, 1.0, 2.0, 4.0], [0.0, 8.0]
    data = log_of(("train", "A", slow), experts=(("A", fast), ("A", slow)))
    assert l2_lifelong(normalise=False)(data).values["SE"] == pytest.approx(np.mean([4 / 8 * 1 / 3, 1.0]))
    poor = log_of(("train", "A", [0.0, 1.0]), experts=(("A", [0.0, 8.0]),))
    assert l2_lifelong(normalise=False)(poor).values["SE"] == 0
    falling = log_of(("train", "A", [5.0, 6.0, 1.0]), experts=(("A", [0.0, 8.0]),))
    assert l2_lifelong(normalise=False)(falling).values["SE"] == 0
    at_once = log_of(("train", "A", [5.0, 1.0]), experts=(("A", [0.0, 8.0]),))
    assert "SE" not in l2_lifelong(normalise=False)(at_once).values


def test_nothing_changes_nothing() -> None:
    blocks = [("eval", t, [50.0]) for t in "AB"]
    data = log_of(
        *blocks, ("train", "A", [50.0]), *blocks, ("train", "B", [50.0]), *blocks, ("train", "A", [50.0]), *blocks
    )
    for transfer, neutral in (("contrast", 0.0), ("ratio", 1.0)):
        found = l2_lifelong(transfer=transfer, low=0.0, high=100.0)(data).values  # type: ignore[arg-type]
        assert (found["PM"], found["FT"], found["BT"]) == (0.0, neutral, neutral)


def test_performance_is_mapped_by_task_and_lifetimes_give_intervals() -> None:
    data = lifelong_measurements(0)
    mapped = data.normalised()
    for task in "ABC":
        rows = mapped.task == task
        assert (mapped.performance[rows].min(), mapped.performance[rows].max()) == (
            pytest.approx(1),
            pytest.approx(101),
        )
    found = l2_lifelong()(data)
    runs = [
        l2_lifelong(low=0.0, high=2.0)(data[np.flatnonzero((data.run == r) | (data.kind == "expert"))]) for r in "01"
    ]
    each = [run.values["PM"] for run in runs]
    both = l2_lifelong(low=0.0, high=2.0)(data).intervals["PM"]
    assert both.estimate == pytest.approx(np.mean(each))
    assert both.high - both.estimate == pytest.approx(stats.t(1).ppf(0.975) * np.std(each, ddof=1) / 2**0.5)
    assert any("RP and SE leave out C" in caution for caution in found.cautions)
    assert any("one lifetime has no interval" in caution for caution in runs[0].cautions)
    assert l2_lifelong()(log_of(("train", "A", [3.0, 3.0]))).values["MTP"] == 1


GOOD = {"type": "eval", "task": "A", "block": 0, "experience": 0, "performance": 1.0}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"type": "test"}, "type must be train, eval or expert, found 'test'"),
        ({"task": ""}, "column 'task' is missing"),
        ({"block": None}, "column 'block' is empty"),
        ({"performance": "good"}, "performance must be a finite number, found 'good'"),
        ({"type": "train"}, "block 0 is of both types, train and eval"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, [GOOD, {**GOOD, **changes}])))
    with pytest.raises(Exception, match=sentence):
        measure("l2-lifelong", file)


def test_bad_data_are_refused() -> None:
    with pytest.raises(MetricDataError, match="no row of type train or eval"):
        LifelongLog(["expert"], ["A"], [0], [0], [1.0])
    with pytest.raises(MetricDataError, match="must be finite numbers"):
        LifelongLog(["eval"], ["A"], [0], [0], [np.nan])
    with pytest.raises(ValueError, match="low must be below high, found 2 and 1"):
        l2_lifelong(low=2.0, high=1.0)
    assert issubclass(MetricError, ValueError)
