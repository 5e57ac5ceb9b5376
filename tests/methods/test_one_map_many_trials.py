"""Shrinkage corrections beside scipy and by hand, corrected action values, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.lab.logged import EpisodicProblem, long_walk
from polopt.lab.measured import predicted_outcomes
from polopt.methods.one_map_many_trials import TrialDifference, one_map_many_trials
from polopt.metrics import (
    CorrectedValues,
    DirectMethod,
    LinearShrinkage,
    LoggedDataError,
    LoggedValues,
    MetricDataError,
    MetricError,
    PredictedTrial,
    TweedieShrinkage,
)
from polopt.training.measuring import measure


def test_the_linear_correction_is_the_inverse_regression() -> None:
    draw = np.random.default_rng(0)
    y = draw.normal(size=200)
    p, new = 0.3 * y + 2 + draw.normal(0, 0.2, 200), draw.normal(size=50)
    line = stats.linregress(y, p)
    expected = (new - line.intercept) / line.slope
    np.testing.assert_allclose(LinearShrinkage()(p, y, new), expected, rtol=1e-12)
    assert LinearShrinkage().summary(p, y)["slope"] == pytest.approx(line.slope)


def test_tweedies_score_is_that_of_scipys_density() -> None:
    """The central difference of `gaussian_kde.logpdf`, within the calibration predictions."""
    draw = np.random.default_rng(1)
    p = np.concatenate([draw.normal(-2, 0.5, 150), draw.normal(1, 1, 150)])
    new, h = draw.uniform(p.min(), p.max(), 100), 1e-5
    kde = stats.gaussian_kde(p)
    score = (kde.logpdf(new + h) - kde.logpdf(new - h)) / (2 * h)
    np.testing.assert_allclose(TweedieShrinkage(points=20001).score(p, new), score, atol=1e-5)
    np.testing.assert_allclose(TweedieShrinkage().score(p, new), score, atol=0.02)
    assert np.abs(score).max() > 1


def test_the_score_of_distant_predictions_is_finite() -> None:
    """Between kernels a thousand widths apart every kernel is 0 in float64; the score is that of the nearest."""
    p = np.array([0.0] * 500 + [0.001] * 500 + [1e6])
    found = TweedieShrinkage().score(p, np.linspace(0, 1e6, 999))
    assert np.isfinite(found).all()


def test_predictions_without_error_stay_as_they_are() -> None:
    y = np.random.default_rng(2).normal(size=120)
    for correction in (LinearShrinkage(), TweedieShrinkage()):
        np.testing.assert_allclose(correction(y, y, y + 0.3), y + 0.3, atol=1e-12)


def test_differences_are_the_raw_ones_over_the_slope() -> None:
    data = predicted_outcomes(3)
    found = one_map_many_trials(tweedie=False, resamples=50)(data)
    raw, corrected = (found.values[f"b - a, {name}"] for name in ("raw", "corrected"))
    assert corrected == pytest.approx(raw / found.values["slope"])
    assert raw == pytest.approx(data.prediction[180:].mean() - data.prediction[120:180].mean())
    other = one_map_many_trials(tweedie=False, baseline="b", resamples=50)(data)
    assert other.values["a - b, corrected"] == pytest.approx(-corrected)
    assert found.intervals["b - a, corrected"].low < corrected < found.intervals["b - a, corrected"].high
    assert any("outside" in caution for caution in found.cautions)


def test_few_rows_and_low_slopes_are_cautioned_of_and_none_is_refused() -> None:
    draw = np.random.default_rng(4)
    y = draw.normal(size=60)
    new = np.zeros(20)

    def data(p: np.ndarray) -> PredictedTrial:
        arm = np.repeat(["", "a", "b"], [60, 10, 10])
        return PredictedTrial(np.concatenate([p, new]), np.concatenate([y, np.full(20, np.nan)]), arm)

    cautions = " ".join(one_map_many_trials(tweedie=False, resamples=10)(data(0.1 * y)).cautions)
    assert "60 calibration rows are few" in cautions
    assert "the slope 0.1 is low" in cautions
    with pytest.raises(MetricError, match=r"slope of the predictions on the targets is -1, below min_slope = 0\.02"):
        one_map_many_trials(tweedie=False)(data(-y))
    with pytest.raises(MetricError, match="calibration predictions are all 0; they must vary"):
        one_map_many_trials()(data(np.zeros(60)))


def test_corrected_values_of_a_shrunken_model_are_those_of_the_true_one() -> None:
    """q = 0.3 q* + 0.2 and rewards without noise: the direct method is exact again, as is its interval's centre."""
    reward = np.array([[[0.0, 0.1], [0.0, 0.9]], [[0.0, 0.5], [0.0, 0.3]]])
    ends = np.broadcast_to([0.0, 0.0, 1.0], (2, 2, 3)).copy()
    problem = EpisodicProblem(np.array([0.4, 0.6]), ends, np.pad(reward, ((0, 0), (0, 0), (1, 0))), 1)
    behaviour, target = np.full((2, 2), 0.5), np.array([[0.2, 0.8], [0.9, 0.1]])
    table = problem.simulate(behaviour, target, 300, 0)
    q, state = 0.3 * reward[..., 1] + 0.2, table.state
    assert state is not None
    logged = type(table)(
        table.lengths, table.reward, table.behaviour_logp, table.target_logp, state, table.action,
        q=q[state, table.action], v=(target * q).sum(1)[state],
    )  # fmt: skip
    truth = (target * reward[..., 1]).sum(1)[state[:, 0]].mean()
    shrunk = DirectMethod(model=LoggedValues()).terms(logged).estimate()
    assert shrunk == pytest.approx(0.3 * truth + 0.2)
    found = DirectMethod(model=CorrectedValues(model=LoggedValues()), resamples=20)(logged)
    assert found.values["estimate"] == pytest.approx(truth, abs=1e-9)


def test_corrected_values_refuse_longer_episodes_and_corrections_that_are_not_affine() -> None:
    problem, behaviour, target = long_walk(3, 0)
    with pytest.raises(LoggedDataError, match="episodes must have one decision, found 3"):
        DirectMethod(model=CorrectedValues())(problem.simulate(behaviour, target, 20, 0))
    with pytest.raises(ValueError, match="correction must be affine"):
        CorrectedValues(correction=TweedieShrinkage())


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"prediction": 1.0}, "a row has either 'target', .* this one has neither"),
        ({"prediction": 1.0, "target": 2.0, "arm": "a"}, "this one has both"),
        ({"prediction": "much", "arm": "a"}, "prediction must be a finite number, found 'much'"),
        ({"arm": "a"}, "column 'prediction' is missing"),
    ],
)
def test_a_bad_row_is_one_sentence(tmp_path: Path, row: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "trial.jsonl"
    file.write_text(json.dumps({"prediction": 0.0, "arm": "a"}) + "\n" + json.dumps(row))
    with pytest.raises(Exception, match=sentence) as caught:
        measure("one-map-many-trials", file)
    assert "2" in str(caught.value)


def test_a_file_is_measured_as_its_arrays_are(tmp_path: Path) -> None:
    data = predicted_outcomes(0)
    file = tmp_path / "trial.csv"
    lines = [
        f"{p!r},{'' if np.isnan(y) else repr(y)},{arm}"
        for p, y, arm in zip(data.prediction.tolist(), data.target.tolist(), data.arm.tolist(), strict=True)
    ]
    file.write_text("\n".join(["prediction,target,arm", *lines]))
    metric = TrialDifference(resamples=10)
    assert measure(metric, file).values == metric(data).values


def test_bad_data_and_settings() -> None:
    with pytest.raises(MetricDataError, match="row 1 must have either a target"):
        PredictedTrial([1.0, 2.0], [1.0, np.nan], ["", ""])
    with pytest.raises(MetricDataError, match="all must be \\[N\\]"):
        PredictedTrial([1.0, 2.0], [1.0], ["", ""])
    with pytest.raises(MetricError, match=r"baseline 'c' is none of the arms \['a', 'b'\]"):
        one_map_many_trials(baseline="c")(predicted_outcomes(0))
    with pytest.raises(MetricError, match="needs the rows of two arms"):
        one_map_many_trials()(predicted_outcomes(0)[np.arange(180)])
    with pytest.raises(ValueError, match="level must be in"):
        one_map_many_trials(level=1.0)
