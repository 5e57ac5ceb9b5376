"""Several metrics of the same policies: fronts by enumeration, volumes by inclusion and exclusion, and bad tables."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from polopt.methods.rai_inconsistency import rai_inconsistency
from polopt.metrics import MetricDataError, MetricError, PolicyMetrics, hypervolume, implied_false_positive_rate
from polopt.metrics.several_metrics import pareto_front, regret_matrix, resampled_tau
from polopt.training.measuring import measure


def test_a_volume_is_that_of_a_union_of_boxes() -> None:
    draw = np.random.default_rng(0)
    for metrics in (1, 2, 3, 4):
        points = draw.random((6, metrics))
        expected = sum(
            (-1) ** (size + 1)
            * sum(np.min(points[list(some)], 0).prod() for some in itertools.combinations(range(6), size))
            for size in range(1, 7)
        )
        assert hypervolume(points) == pytest.approx(expected)
        assert hypervolume(points[pareto_front(points)]) == pytest.approx(expected)


def test_a_front_by_enumeration() -> None:
    points = np.random.default_rng(1).integers(0, 4, (30, 3))
    for row, kept in zip(points, pareto_front(points), strict=True):
        dominated = any(all(other >= row) and any(other > row) for other in points)
        assert kept != dominated
    assert 1 < pareto_front(points).sum() < 30


def test_regret_and_knee_by_hand() -> None:
    data = PolicyMetrics(list("pqrs"), {"a": [3.0, 3.0, 2.0, 0.0], "b": [1.0, 0.0, 4.0, 5.0]})
    found = rai_inconsistency(eps=0.5)(data)
    # Of the two policies that are best in a, the one that is worse in b counts.
    assert found.values["regret of b, optimising a"] == 1.0
    assert found.values["regret of a, optimising b"] == 1.0
    assert (found.values["inconsistency"], found.values["consistent"]) == (1.0, 0.0)
    assert found.rows["front"].tolist() == [1, 0, 1, 1]
    assert found.rows["knee"].tolist() == [0, 0, 1, 0]
    assert "the knee is r" in found.cautions
    assert found.values["tau, a and b"] == pytest.approx(stats.kendalltau([3, 3, 2, 0], [1, 0, 4, 5]).statistic)
    lower = rai_inconsistency(lower=("b",))(data)
    assert lower.values["tau, a and b"] == -found.values["tau, a and b"]
    assert regret_matrix(np.array([[1.0, 2.0], [1.0, 5.0]]))[0].tolist() == [0.0, 1.0]


def test_bootstrap_correlations_are_those_of_resampled_rows() -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 8))
    found = resampled_tau(x, y, 20, seed=3)
    counts = np.random.default_rng(3).multinomial(8, np.full(8, 1 / 8), 20)
    for value, count in zip(found, counts, strict=True):
        rows = np.repeat(np.arange(8), count)
        assert value == pytest.approx(stats.kendalltau(x[rows], y[rows]).statistic)


def test_intervals_cover_the_correlation_of_normal_metrics() -> None:
    draw, truth, covered = np.random.default_rng(4), 2 / np.pi * np.arcsin(-0.5), 0
    for _ in range(100):
        x, y = draw.multivariate_normal([0, 0], [[1, -0.5], [-0.5, 1]], 40).T
        interval = rai_inconsistency(resamples=200)(PolicyMetrics(range(40), {"x": x, "y": y})).intervals[
            "tau, x and y"
        ]
        covered += interval.low <= truth <= interval.high
    assert covered >= stats.binom(100, 0.89).ppf(1e-3)


def test_one_metric_is_plain_maximisation() -> None:
    found = rai_inconsistency()(PolicyMetrics(list("pq"), {"a": [1.0, 2.0], "b": [7.0, 7.0]}))
    assert (found.values["conflicts"], found.values["front"], found.values["inconsistency"]) == (0, 1, 0)
    assert any("b: equal for all policies" in caution for caution in found.cautions)


def test_the_rate_that_is_left_open_is_what_is_counted() -> None:
    tp, fp, fn, tn = 30.0, 10.0, 20.0, 40.0
    assert implied_false_positive_rate(0.5, tp / (tp + fp), fn / (tp + fn)) == pytest.approx(fp / (fp + tn))
    with pytest.raises(ValueError, match="base_rate must be in"):
        implied_false_positive_rate(1.0, 0.5, 0.5)


def test_a_runs_log_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    rows = [
        {"step": i, "stage": "rl", "reward": i, "kl": i * i, "late": i if i else None, "note": "x"} for i in range(5)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    found = measure("rai-inconsistency", file, lower=["kl"])
    assert found.values["tau, kl and reward"] == -1
    assert found.values["front"] == 5
    assert any("not every policy has late" in caution for caution in found.cautions)
    with pytest.raises(MetricError, match="not every policy has 'late'"):
        measure("rai-inconsistency", file, metrics=["late", "kl"])
    with pytest.raises(MetricError, match="there is no metric 'rewrd'; did you mean 'reward'"):
        measure("rai-inconsistency", file, metrics=["rewrd"])


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([{"a": 1}], "columns 'policy' and 'step' are missing"),
        ([{"policy": "p", "a": "x"}], "policy 'p' has no number"),
        ([{"policy": "p", "a": 1}, {"policy": "p", "a": 2}], "policy 'p' has several rows"),
        ([{"policy": "p", "a": 1}], "no metric that all policies have varies"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, rows: list[dict], sentence: str) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(Exception, match=sentence):
        measure("rai-inconsistency", file)


def test_bad_data_are_refused() -> None:
    with pytest.raises(MetricDataError, match="found 2 policies and"):
        PolicyMetrics(["p", "q"], {"a": [1.0]})
    with pytest.raises(ValueError, match=r"eps must be in \[0, 1\]"):
        rai_inconsistency(eps=2.0)
