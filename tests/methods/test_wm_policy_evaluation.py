"""Agreement of simulated and true values beside scipy and by hand, rollouts in simulators, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.lab.measured import simulated
from polopt.methods.wm_policy_evaluation import wm_policy_evaluation
from polopt.metrics import (
    MetricDataError,
    MetricError,
    RandomFeatureDynamics,
    SimulatedPolicies,
    rank_violation,
    simulated_value,
)
from polopt.training.measuring import measure


def test_correlations_are_scipys_and_the_violation_is_that_of_the_definition() -> None:
    for seed in range(5):
        data = simulated(seed)
        found = wm_policy_evaluation(resamples=10)(data).values
        for model in ("one", "other"):
            rows = data.model == model
            v, r = data.predicted[rows], data.true[rows]
            assert found[f"{model}, Pearson r"] == pytest.approx(stats.pearsonr(v, r).statistic)
            assert found[f"{model}, rank correlation"] == pytest.approx(stats.spearmanr(v, r).statistic)
            worst = [
                max(abs(r[i] - r[j]) * ((v[i] < v[j]) != (r[i] < r[j])) for j in range(len(v))) for i in range(len(v))
            ]
            assert found[f"{model}, MMRV"] == pytest.approx(np.mean(worst))
            assert found[f"{model}, RMSE"] == pytest.approx(np.sqrt(np.mean((v - r) ** 2)))
    assert rank_violation([3.0, 2.0, 1.0], [0.0, 0.5, 1.0]) == pytest.approx(5 / 6)


def test_trials_widen_the_interval_of_the_bias() -> None:
    """Success rates of 20 trials vary by themselves: with n policies of variance p (1 - p) / 20 more."""
    data = simulated(0)
    bare = SimulatedPolicies(data.policy, data.predicted, data.true, model=data.model)
    one, other = (wm_policy_evaluation(resamples=500)(x).intervals["one, bias"] for x in (bare, data))
    assert other.high - other.low > 1.02 * (one.high - one.low)
    assert one.estimate == other.estimate == pytest.approx((data.predicted - data.true)[:8].mean())


def test_a_linear_system_is_learned_and_a_policy_has_its_closed_form_in_it() -> None:
    """x' = 0.9 x + 0.5 u with u = -x is x' = 0.4 x."""
    draw = np.random.default_rng(0)
    state, action = draw.uniform(-2, 2, (400, 1)), draw.uniform(-2, 2, (400, 1))
    model = RandomFeatureDynamics.fit(state, action, 0.9 * state + 0.5 * action, ridge=1e-8)
    start = np.array([[1.0], [-0.5]])
    found = simulated_value(model, lambda s: -s, start, 5, lambda states: states[-1, :, 0])
    np.testing.assert_allclose(found, 0.4**5 * start[:, 0], atol=1e-3)
    exact = simulated_value(lambda s, a: 0.9 * s + 0.5 * a, lambda s: -s, start, 5, lambda states: states[-1, :, 0])
    np.testing.assert_allclose(exact, 0.4**5 * start[:, 0], rtol=1e-12)
    far = model(np.full((1, 1), 1e9), np.zeros((1, 1)))
    assert np.abs(far).max() <= 20


def rows(**changes: Any) -> list[dict[str, Any]]:
    return [{"policy": str(i), "predicted": i / 4, "true": i / 5, **(changes if i == 1 else {})} for i in range(4)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"true": None}, "column 'true' is empty"),
        ({"predicted": "good"}, "predicted must be a finite number, found 'good'"),
        ({"policy": ""}, "column 'policy' is missing"),
        ({"policy": "0"}, "a model has two predictions of one policy"),
        ({"trials": 10}, "row 1: trials is empty; give it in every row or in none"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "policies.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("wm-policy-evaluation", file)


def test_a_file_is_measured_and_few_policies_are_cautioned_of(tmp_path: Path) -> None:
    file = tmp_path / "policies.jsonl"
    file.write_text("\n".join(map(json.dumps, rows())))
    found = measure("wm-policy-evaluation", file, resamples=50)
    assert found.values["model, Pearson r"] == pytest.approx(1)
    assert any("4 policies are few" in caution for caution in found.cautions)


def test_bad_data() -> None:
    with pytest.raises(MetricError, match="model 'model' has one policy"):
        wm_policy_evaluation()(SimulatedPolicies(["a"], [1.0], [1.0]))
    with pytest.raises(MetricDataError, match="success rates, in"):
        SimulatedPolicies(["a", "b"], [1.0, 0.0], [2.0, 1.0], [5, 5])
    with pytest.raises(MetricDataError, match="all must be \\[N\\]"):
        SimulatedPolicies(["a", "b"], [1.0], [2.0, 1.0])
    with pytest.raises(MetricDataError, match=r"action \[N, A\], N >= 1"):
        RandomFeatureDynamics.fit(np.zeros((2, 1)), np.zeros(2), np.zeros((2, 1)))
    same = wm_policy_evaluation(resamples=5)(SimulatedPolicies(["a", "b"], [1.0, 1.0], [1.0, 2.0]))
    assert any("have no correlation" in caution for caution in same.cautions)
