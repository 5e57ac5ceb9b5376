"""Power laws of success by other optimisers and exact points, the curves of a table, the advice, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from polopt.lab.measured import policies_by_data
from polopt.methods.il_data_scaling import il_data_scaling
from polopt.metrics import CollectedData, MetricDataError, MetricError, fit_power_law
from polopt.metrics.power_law import log_correlation
from polopt.training.measuring import measure

SIZES = np.array([1.0, 2, 4, 8, 16, 32])


def negative_log_likelihood(at: Any, failures: np.ndarray, trials: np.ndarray) -> float:
    gap = np.asarray((at[2] if len(at) > 2 else 0.0) + at[0] * SIZES ** at[1])
    if (gap > 1).any() or (gap <= 0).any():  # the laws are below 1 at the data
        return float("inf")
    gap = np.minimum(gap, 1 - 1e-12)
    return float(-(failures * np.log(gap) + (trials - failures) * np.log1p(-gap)).sum())


def test_the_fit_is_the_maximum_that_another_optimiser_finds() -> None:
    trials = np.array([50.0, 100, 200, 100, 50, 400])
    counts = np.random.default_rng(0).binomial(trials.astype(int), 0.7 * SIZES**-0.6, (5, 6))
    laws = fit_power_law(SIZES, counts, trials)
    for k, failures in enumerate(counts):
        found = optimize.minimize(
            negative_log_likelihood,
            [0.6, -0.5],
            (failures, trials),
            "Nelder-Mead",
            options={"xatol": 1e-8, "fatol": 1e-10},
        )
        assert [laws.factor[k], laws.exponent[k]] == pytest.approx(found.x, abs=1e-4)
        one = fit_power_law(SIZES, failures, trials)
        assert float(one.exponent) == pytest.approx(float(laws.exponent[k]))


def test_a_floor_is_found_on_its_grid() -> None:
    trials = np.full(6, 2000.0)
    failures = np.round(2000 * (0.2 + 0.6 * SIZES**-1.0))
    law = fit_power_law(SIZES, failures, trials, floor=True)
    assert (float(law.floor), float(law.factor), float(law.exponent)) == pytest.approx((0.2, 0.6, -1.0), abs=0.01)
    without = fit_power_law(SIZES, failures, trials)
    at = [float(without.factor), float(without.exponent)]
    assert negative_log_likelihood(at, failures, trials) > 50 + negative_log_likelihood(
        [float(law.factor), float(law.exponent), float(law.floor)], failures, trials
    )
    assert law.gap(1e9) == pytest.approx(0.2, abs=1e-3)


def test_points_of_success_0_and_1_are_fitted() -> None:
    for failures in ([20.0, 12, 6, 3, 1, 0], [20.0, 20, 20, 10, 5, 2], [0.0, 0, 0, 0, 0, 1]):
        law = fit_power_law(SIZES, failures, np.full(6, 20.0))
        assert np.isfinite([law.factor, law.exponent]).all()
        found = optimize.minimize(
            negative_log_likelihood,
            [float(law.factor), float(law.exponent)],
            (np.array(failures), np.full(6, 20.0)),
            "Nelder-Mead",
        )
        own = negative_log_likelihood([law.factor, law.exponent], np.array(failures), np.full(6, 20.0))
        assert own <= found.fun + 1e-3


def test_the_correlation_is_scipys_over_positive_gaps() -> None:
    gap = np.array([0.8, 0.5, 0.4, 0.2, 0.15, 0.0])
    expected = stats.pearsonr(np.log(SIZES[:5]), np.log(gap[:5])).statistic
    assert float(log_correlation(SIZES, gap)) == pytest.approx(expected)
    assert float(log_correlation(SIZES, SIZES**-0.3)) == pytest.approx(-1)
    assert np.isnan(log_correlation(SIZES, np.zeros(6)))


def test_curves_are_of_rows_that_differ_in_one_size() -> None:
    data = CollectedData(
        successes=[1] * 10,
        trials=[2] * 10,
        environments=[1, 2, 4, 8, 4, 4, 1, 2, 4, 8],
        objects=[1, 2, 4, 8, 4, 4, 1, 1, 1, 1],
        demonstrations=[50, 50, 50, 50, 100, 200, 50, 50, 50, 50],
    )
    found = {name: (size.tolist(), sorted(rows.tolist())) for name, (size, rows) in data.curves().items()}
    assert found == {
        "environments": ([1, 1, 2, 4, 8], [0, 6, 7, 8, 9]),  # with one object; two rows are of one size
        "demonstrations": ([50, 100, 200], [2, 4, 5]),
        "environments and objects": ([1, 1, 2, 4, 8], [0, 1, 2, 3, 6]),
    }
    two = CollectedData([1] * 6, [2] * 6, [1, 2, 4] * 2, None, [5] * 3 + [9] * 3)
    assert list(two.curves()) == [
        "environments (objects 1, demonstrations 5)",
        "environments (objects 1, demonstrations 9)",
    ]


def test_values_are_those_of_the_law() -> None:
    data = policies_by_data(0)
    found = il_data_scaling(target=0.8)(data)
    size, rows = data.curves()["environments"]
    law = fit_power_law(size, data.trials[rows] - data.successes[rows], data.trials[rows])
    assert found.values["environments, exponent"] == pytest.approx(float(law.exponent))
    gain = float(law.factor) * (32**law.exponent - 64**law.exponent)
    assert found.values["environments, gain"] == pytest.approx(gain)
    assert float(law.gap(found.values["environments, size for 0.8"])) == pytest.approx(0.2)
    interval = found.intervals["environments, exponent"]
    assert interval.low < interval.estimate < interval.high < 0
    assert "Collect more environments" in found.tables[0].caption


def test_advice_when_nothing_helps_and_when_all_is_alike() -> None:
    flat = CollectedData([90] * 8, [1000] * 8, [1, 2, 4, 8, 2, 2, 2, 2], None, [5, 5, 5, 5, 10, 20, 40, 80])
    assert "More of these data will not help" in il_data_scaling()(flat).tables[0].caption
    rates = [0.2, 0.4, 0.55, 0.66]
    alike = CollectedData(
        [round(30 * x) for x in rates + rates[1:]], [30] * 7, [1, 2, 4, 8, 1, 1, 1], None, [5, 5, 5, 5, 10, 20, 40]
    )
    assert "their gains were not separated" in il_data_scaling()(alike).tables[0].caption


def rows(**changes: Any) -> list[dict[str, Any]]:
    found = [{"environments": 2**i, "successes": 5 + i, "trials": 10} for i in range(4)]
    return [{**row, **(changes if i == 2 else {})} for i, row in enumerate(found)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"trials": None}, "line 3: column 'trials' is empty"),
        ({"successes": 11}, "line 3: successes must be from 0 to trials = 10, found 11"),
        ({"successes": None}, "line 3: give successes or score, one of them, of trials"),
        ({"score": 0.5}, "line 3: give successes or score, one of them"),
        ({"successes": None, "score": 7}, r"line 3: score must lie in \[0, 1\], found 7"),
        ({"environments": 1.5}, "line 3: environments must be a whole number >= 1, found 1.5"),
        ({"demonstrations": 0}, "line 3: demonstrations must be a whole number >= 1, found 0"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "policies.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("il-data-scaling", file)


def test_what_has_no_curve_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policies.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(score=0.7, successes=None))))
    assert measure("il-data-scaling", file, resamples=20).values["environments, exponent"] < 0
    with pytest.raises(MetricError, match="needs 3 sizes of environments, objects or demonstrations"):
        il_data_scaling()(CollectedData([1, 2], [3, 3], [1, 2]))
    with pytest.raises(MetricError, match="all trials of environments succeeded"):
        il_data_scaling()(CollectedData([3] * 3, [3] * 3, [1, 2, 4]))
    with pytest.raises(MetricError, match="all trials of environments failed"):
        il_data_scaling()(CollectedData([0] * 3, [3] * 3, [1, 2, 4]))
    with pytest.raises(MetricDataError, match="successes must be from 0 to trials"):
        CollectedData([4], [3])
    with pytest.raises(ValueError, match="needs 2 different sizes"):
        fit_power_law([2, 2], [1, 1], [3, 3])
    for settings in ({"target": 1.0}, {"level": 0.0}, {"resamples": 3}):
        with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
            il_data_scaling(**settings)  # type: ignore[arg-type]
