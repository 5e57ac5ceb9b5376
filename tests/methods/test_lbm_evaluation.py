"""Comparison of policies over trials: rates, pairing, tests and letters against other computations, and the door."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.lab.measured import trials_of_policies
from polopt.methods.lbm_evaluation import lbm_evaluation
from polopt.metrics import MetricDataError, MetricError, PolicyTrials, beta_posterior, exact_difference_p
from polopt.training.measuring import measure


def test_the_posterior_is_scipys_beta() -> None:
    for s, n in ((0, 5), (7, 10), (20, 20), (0, 0)):
        found, beta = beta_posterior(s, n, 0.9), stats.beta(1 + s, 1 + n - s)
        assert (found.estimate, found.low, found.high) == pytest.approx((beta.mean(), *beta.ppf([0.05, 0.95])))


def test_rates_over_tasks_are_means_of_the_tasks() -> None:
    """The interval of a mean over two tasks against the convolution of the two densities, by quadrature."""
    data = PolicyTrials(["p"] * 30, [1] * 18 + [0] * 2 + [1] * 2 + [0] * 8, ["easy"] * 20 + ["hard"] * 10)
    found = lbm_evaluation()(data)
    interval = found.intervals["p, success rate"]
    assert interval.estimate == pytest.approx((19 / 22 + 3 / 12) / 2, abs=2e-3)  # and not 21 / 32
    x = np.linspace(0, 1, 2001)
    density = np.convolve(stats.beta(19, 3).pdf(x), stats.beta(3, 9).pdf(x))
    cdf = np.cumsum(density) / density.sum()
    ends = [float(np.interp(q, cdf, np.linspace(0, 1, len(cdf)))) for q in (0.025, 0.975)]
    assert (interval.low, interval.high) == pytest.approx(ends, abs=4e-3)
    assert found.values["p, easy, success rate"] == pytest.approx(19 / 22)
    assert "there is one policy" in found.cautions[0]


def test_the_exact_test_is_barnards_on_one_task_and_fishers_given_the_totals() -> None:
    table = [[7, 12], [8, 3]]
    assert exact_difference_p([[7], [12]], [[15], [15]]) == pytest.approx(stats.barnard_exact(table).pvalue)
    # A task on which neither ever succeeds holds no information, so that the other one is left: Fisher's test.
    assert exact_difference_p([[7, 0], [12, 0]], [[15, 9], [15, 9]]) == pytest.approx(stats.fisher_exact(table)[1])
    assert exact_difference_p([[0], [0]], [[5], [5]]) == 1.0


def test_the_stratified_test_is_an_enumeration() -> None:
    s, n = np.array([[4, 3], [1, 1]]), np.array([[5, 4], [5, 6]])
    totals: dict[int, float] = {}
    margins = s.sum(0)
    tables = [stats.hypergeom(n[:, t].sum(), margins[t], n[0, t]) for t in range(2)]
    for one, other in itertools.product(range(6), range(5)):
        chance = tables[0].pmf(one) * tables[1].pmf(other)
        totals[one + other] = totals.get(one + other, 0.0) + chance
    observed = totals[int(s[0].sum())]
    expected = sum(chance for chance in totals.values() if chance <= observed * (1 + 1e-7))
    assert exact_difference_p(s, n) == pytest.approx(expected)
    assert 0.01 < expected < 0.5


def test_pairs_are_within_a_task_in_the_order_in_which_they_were_complete() -> None:
    data = PolicyTrials(
        policy=["a", "b", "b", "a", "a", "b", "b"],
        success=[1, 0, 0, 0, 1, 1, 1],
        task=["x", "y", "x", "y", "x", "y", "x"],
        order=[0, 1, 2, 3, 4, 5, 6],
    )
    # x: (0, 2) complete at 2, (4, 6) at 6; y: (3, 1) at 3; b's second trial of y has no partner.
    assert data.differences("a", "b").tolist() == [1.0, 0.0, 0.0]
    assert data.differences("b", "a").tolist() == [-1.0, 0.0, 0.0]
    named = PolicyTrials(["a", "a", "b", "b"], [1, 0, 0, 1], None, None, ["left", "right", "right", "left"])
    assert named.differences("a", "b").tolist() == [0.0, 0.0]
    unnamed = PolicyTrials(["a", "a", "b", "b"], [1, 0, 0, 1])
    assert unnamed.differences("a", "b").tolist() == [1.0, -1.0]


def test_letters_of_clear_and_unclear_pairs() -> None:
    turns = np.tile(["a", "b", "c"], 80)
    draw = np.random.default_rng(0)
    data = PolicyTrials(turns, draw.random(240) < np.where(turns == "a", 0.95, np.where(turns == "b", 0.9, 0.3)))
    for test in ("anytime", "fixed"):
        for correction in ("holm", "bonferroni"):
            metric = lbm_evaluation(test=test, correction=correction)  # type: ignore[arg-type]
            assert metric.letters(data) == {"a": "a", "b": "a", "c": "b"}
    found = lbm_evaluation(test="fixed")(data)
    counts = [[int(data.success[turns == p].sum()), int((data.success[turns == p] == 0).sum())] for p in "ac"]
    assert found.values["a - c, p"] == pytest.approx(stats.barnard_exact(np.transpose(counts)).pvalue)
    assert [row[:2] for row in found.tables[0].rows] == [("a", "a"), ("b", "a"), ("c", "b")]


def test_scores_are_compared_by_bets_too_and_their_interval_is_welchs() -> None:
    data = trials_of_policies(0)
    one_task = data[np.flatnonzero(data.task == "pour")]
    found = lbm_evaluation(outcome="score")(one_task)
    x, y = (one_task.score[one_task.policy == p] for p in ("large", "small"))
    welch = stats.ttest_ind(x, y, equal_var=False).confidence_interval()
    interval = found.intervals["large - small, difference"]
    assert (interval.low, interval.high) == pytest.approx((welch.low, welch.high))
    assert found.values["large - small, p"] != lbm_evaluation()(one_task).values["large - small, p"]
    with pytest.raises(MetricError, match="a trial has no score; give the column score"):
        lbm_evaluation(outcome="score")(PolicyTrials(["a", "b"], [1, 0]))


def test_trials_in_blocks_and_without_partners_are_cautioned() -> None:
    blocks = PolicyTrials(["a"] * 10 + ["b"] * 10, [1, 0] * 10)
    assert any("let policies take turns" in caution for caution in lbm_evaluation()(blocks).cautions)
    turns = PolicyTrials(["a", "b"] * 10 + ["a"] * 5, [1] * 25)
    (caution,) = lbm_evaluation()(turns).cautions
    assert "5 trials have no partner" in caution
    apart = PolicyTrials(["a", "b"], [1, 1], ["x", "y"])
    assert any("compared on 0" in caution for caution in lbm_evaluation()(apart).cautions)
    assert lbm_evaluation().letters(apart) == {"a": "a", "b": "a"}


def rows(**changes: Any) -> list[dict[str, Any]]:
    found = [{"policy": "ab"[i % 2], "success": i % 3 == 0, "pair": i // 2, "order": i} for i in range(8)]
    return [{**row, **(changes if i == 3 else {})} for i, row in enumerate(found)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"success": 0.5}, "line 4: success must be true or false, found 0.5; partial success belongs to .* score"),
        ({"success": None}, "line 4: success must be true or false, found None"),
        ({"policy": " "}, "line 4: column 'policy' is missing"),
        ({"score": 1.5}, r"line 4: score must lie in \[0, 1\], found 1.5"),
        ({"order": "late"}, "line 4: order must be a finite number, found 'late'"),
        ({"order": None}, "row 4: order is empty; give it in every row or in none"),
        ({"pair": ""}, "1 trials have no pair; name it in every row or in none"),
        ({"pair": 0}, "policy 'b' has two trials in pair '0' of task 'all'"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "trials.jsonl"
    file.write_text("\n".join(map(json.dumps, rows(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("lbm-evaluation", file)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"test": "sometimes"}, "'test' = 'sometimes' is not valid: Input should be 'anytime' or 'fixed'"),
        ({"correction": "none"}, "Input should be 'holm' or 'bonferroni'"),
        ({"test": "fixed", "outcome": "score"}, "test fixed counts successes"),
        ({"level": 95}, r"level must be in \(0, 1\), found 95"),
    ],
)
def test_bad_settings(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        lbm_evaluation(**settings)


def test_bad_arrays() -> None:
    with pytest.raises(MetricDataError, match=r"must be \[N\]"):
        PolicyTrials(["a", "b"], [1])
    with pytest.raises(MetricDataError, match="success must be true or false"):
        PolicyTrials(["a"], [0.5])
    with pytest.raises(MetricDataError, match="score lie in"):
        PolicyTrials(["a"], [1], score=[2.0])
    with pytest.raises(ValueError, match=r"counts \[2, tasks\]"):
        exact_difference_p([1, 2], [3, 4])
