"""Calibration: against loops, closed forms and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polopt.metrics import brier_score, calibration_error, fit_temperature, log_loss, reliability


def rows(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Predictions, and what happened at half their log-odds."""
    draw = np.random.default_rng(seed)
    margin = draw.normal(0, 3, n)
    return margin, (draw.random(n) < 1 / (1 + np.exp(-margin / 2))).astype(float)


def test_calibration_error_against_a_loop() -> None:
    draw = np.random.default_rng(1)
    chance = draw.random(30)
    liked = (draw.random(30) < chance).astype(float)
    order = sorted(range(30), key=lambda i: chance[i])
    wanted = 0.0
    for at in range(0, 30, 6):
        some = order[at : at + 6]
        wanted += 6 / 30 * abs(sum(chance[i] for i in some) / 6 - sum(liked[i] for i in some) / 6)
    assert calibration_error(chance, liked, bins=5) == pytest.approx(wanted, rel=1e-12)
    assert calibration_error([0.5, 0.5], [0, 1], bins=1) == 0.0
    assert calibration_error([0.02] * 50, [1] + [0] * 49, bins=1) == pytest.approx(0.0, abs=1e-12)
    assert calibration_error([0.9] * 4, [1, 1, 0, 0]) == pytest.approx(0.4)
    assert calibration_error([0.0, 1.0], [0, 1], by="uniform") == 0.0
    draws = [0.9] * 4 + [0.2] * 3 + [0.5] * 5
    assert [part.rows for part in reliability(draws, [1] * 12, bins=4)] == [3, 5, 4]


@pytest.mark.parametrize("seed", range(5))
def test_scikit_learn_has_the_same_numbers(seed: int) -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    metrics = pytest.importorskip("sklearn.metrics")
    margin, happened = rows(seed)
    chance = 1 / (1 + np.exp(-margin))
    observed, predicted = calibration.calibration_curve(happened, chance, n_bins=10, strategy="uniform")
    found = reliability(chance, happened, bins=10, by="uniform")
    np.testing.assert_allclose([part.observed for part in found], observed, rtol=1e-12)
    np.testing.assert_allclose([part.predicted for part in found], predicted, rtol=1e-12)
    assert sum(part.rows for part in found) == len(margin)
    assert log_loss(chance, happened) == pytest.approx(metrics.log_loss(happened, chance), rel=1e-12)
    assert brier_score(chance, happened) == pytest.approx(metrics.brier_score_loss(happened, chance), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_temperature_is_a_logistic_regression_without_a_constant(seed: int) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    margin, happened = rows(seed)
    fitted = linear.LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000)
    fitted.fit(margin[:, None], happened)
    found = fit_temperature(margin, happened)
    assert found == pytest.approx(1 / fitted.coef_[0, 0], rel=1e-5)
    assert 1.2 < found < 3.5  # 2 made the rows
    scaled, plain = (log_loss(1 / (1 + np.exp(-margin / t)), happened) for t in (found, 1.0))
    assert scaled < plain


def test_the_temperature_in_closed_form() -> None:
    """Of one size of margin, right in a share p of rows: T = a / log(p / (1 - p)), or a / Phi^-1(p)."""
    margin, happened = np.full(10, 1.7), np.array([1.0] * 8 + [0.0] * 2)
    assert fit_temperature(margin, happened) == pytest.approx(1.7 / math.log(4), rel=1e-9)
    assert fit_temperature(margin, happened, "probit") == pytest.approx(1.7 / 0.8416212335729143, rel=1e-9)
    assert fit_temperature(-margin, 1 - happened) == pytest.approx(1.7 / math.log(4), rel=1e-9)
    assert fit_temperature([1.7], [0.8]) == pytest.approx(1.7 / math.log(4), rel=1e-9)


def test_the_temperature_is_the_least_of_a_grid() -> None:
    from scipy.special import log_ndtr

    margin, happened = rows(9)
    grid = np.linspace(0.5, 6, 2201)
    sign = 2 * happened - 1
    losses = [-log_ndtr(sign * margin / t).mean() for t in grid]
    assert fit_temperature(margin, happened, "probit") == pytest.approx(grid[int(np.argmin(losses))], abs=0.003)


def test_the_ends_of_the_temperature() -> None:
    assert fit_temperature([1.0, 2.0], [1, 1]) == 1e-4
    assert fit_temperature([1.0, 1.0, 2.0], [1, 0, 0]) == 1e4
    assert fit_temperature([0.0, 0.0], [1, 0]) in (1e-4, 1e4)  # all temperatures are alike


def test_chances_at_their_ends() -> None:
    assert log_loss([1.0, 0.0], [1, 0]) == 0.0
    assert log_loss([0.5, 0.5], [1, 0]) == pytest.approx(math.log(2))
    assert log_loss([0.0], [1]) == math.inf
    assert log_loss([0.25], [0.5]) == pytest.approx(-(math.log(0.25) + math.log(0.75)) / 2)


@pytest.mark.parametrize("function", [reliability, calibration_error, log_loss, brier_score, fit_temperature])
def test_bad_rows(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"must both be \[n\] with n >= 1, found \[0\] and \[0\]"):
        function([], [])
    with pytest.raises(ValueError, match=r"found \[2\] and \[3\]"):
        function([0.1, 0.2], [1, 0, 1])
    with pytest.raises(ValueError, match=r"happened must be in \[0, 1\], found 0 to 2"):
        function([0.1, 0.2], [0, 2])
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]|must be finite"):
        function([0.1, math.nan], [0, 1])
    with pytest.raises(ValueError, match="bins must be >= 1"):
        calibration_error([0.1], [0], bins=0)
