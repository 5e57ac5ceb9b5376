"""Risk and return of estimators' first policies, by hand, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.lab.measured import estimated_candidates
from polopt.methods.sharpe_at_k import sharpe_at_k
from polopt.metrics import EstimatedPolicies, MetricDataError, MetricError
from polopt.training.measuring import measure


def test_every_number_by_hand() -> None:
    data = EstimatedPolicies(
        estimator=["a"] * 4,
        policy=["p", "q", "r", "s"],
        estimate=[4.0, 3.0, 2.0, 1.0],
        value=[1.0, 5.0, 9.0, 2.0],
        behaviour=[False, False, False, True],
    )
    found = sharpe_at_k(k=(1, 2, 4), threshold=2.0)(data)
    values = {name.removeprefix("a, "): value for name, value in found.values.items()}
    assert values["SharpeRatio@2"] == pytest.approx((5 - 2) / 2)
    assert values["SharpeRatio@4"] == pytest.approx((9 - 2) / np.std([1, 5, 9, 2]))
    assert np.isnan(values["SharpeRatio@1"])
    assert (values["best@2"], values["worst@2"], values["mean@2"], values["std@2"]) == (5.0, 1.0, 3.0, 2.0)
    assert (values["regret@1"], values["regret@2"], values["regret@4"]) == (8.0, 4.0, 0.0)
    assert (values["violations@1"], values["violations@2"], values["violations@4"]) == (1.0, 0.5, 0.25)
    assert values["RMSE"] == pytest.approx(np.sqrt((9 + 4 + 49 + 1) / 4))
    assert any("SharpeRatio@1" in caution for caution in found.cautions)
    one = sharpe_at_k(k=(2,), ddof=1)(data).values["a, SharpeRatio@2"]
    assert one == pytest.approx(3 / np.std([1, 5], ddof=1))


def test_origin_and_unit_of_the_values_change_no_ratio() -> None:
    data = estimated_candidates(0)
    moved = EstimatedPolicies(data.estimator, data.policy, data.estimate, 3 * data.value - 7, data.behaviour, data.log)
    one, other = (sharpe_at_k()(each).values for each in (data, moved))
    ratios = [name for name in one if "SharpeRatio" in name]
    assert [one[name] for name in ratios] == pytest.approx([other[name] for name in ratios])
    assert len({round(one[name], 6) for name in ratios}) > 3


def test_the_rank_correlation_is_scipys_and_logs_give_an_interval() -> None:
    data = estimated_candidates(1)
    found = sharpe_at_k()(data)
    each = []
    for log in ("monday", "tuesday"):
        rows = (data.estimator == "wis") & (data.log == log)
        each.append(stats.spearmanr(data.estimate[rows], data.value[rows]).statistic)
    assert found.values["wis, rank correlation"] == pytest.approx(np.mean(each))
    interval = found.intervals["wis, rank correlation"]
    assert interval.low == pytest.approx(stats.t(1).ppf(0.025) * np.std(each, ddof=1) / 2**0.5 + np.mean(each))


def test_a_portfolio_of_one_value_has_no_risk_to_divide_by() -> None:
    same = {"estimator": ["a"] * 3, "policy": list("pqr"), "estimate": [3.0, 2.0, 1.0]}
    equal = EstimatedPolicies(**same, value=[1.0, 1.0, 1.0], behaviour=[True, False, False])
    assert sharpe_at_k(k=(2,))(equal).values["a, SharpeRatio@2"] == 0
    apart = EstimatedPolicies(**same, value=[1.0, 1.0, 0.0], behaviour=[False, False, True])
    assert np.isnan(sharpe_at_k(k=(2,))(apart).values["a, SharpeRatio@2"])


def rows(**changes: Any) -> list[dict[str, Any]]:
    base = {"estimator": "dr", "estimate": 1.0, "value": 2.0}
    return [{**base, "policy": str(i), "behaviour": i == 0, **(changes if i == 1 else {})} for i in range(5)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"value": None}, "column 'value' is empty"),
        ({"estimate": "high"}, "estimate must be a finite number, found 'high'"),
        ({"behaviour": "perhaps"}, "behaviour must be true or false, found 'perhaps'"),
        ({"policy": "0"}, "a policy has two estimates; give each one row"),
        ({"behaviour": True}, "2 rows are of the behaviour policy"),
        ({"estimator": ""}, "column 'estimator' is missing"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "estimates.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("sharpe-at-k", file)


def test_a_file_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "estimates.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(value=5.0, estimate=9.0))))
    assert measure("sharpe-at-k", file, k=(2,)).values["dr, SharpeRatio@2"] == pytest.approx((5 - 2) / 1.5)


def test_more_candidates_than_there_are_is_refused() -> None:
    with pytest.raises(MetricError, match=r"k = 9 needs as many candidates, and pdis has 8 in log monday; set k"):
        sharpe_at_k(k=(9,))(estimated_candidates(0))
    with pytest.raises(ValueError, match="k must be sizes from 1 on"):
        sharpe_at_k(k=())
    with pytest.raises(MetricDataError, match="must be \\[N\\]"):
        EstimatedPolicies(["a"], ["p", "q"], [1.0], [1.0], [True])
