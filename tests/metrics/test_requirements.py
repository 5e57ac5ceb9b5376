"""Requirements: tails and bounds against scipy's own, Holm by hand, severities, and what is unknown."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.metrics import GatedRequirements, MeasuredScore, MetricDataError, Requirement, gate, t_interval
from polopt.metrics.requirements import sentence_of
from polopt.training.measuring import measure


def asked(**changes: Any) -> Requirement:
    return Requirement(**{"attribute": "reliability", "metric": "m", "op": ">=", "threshold": 0.9, **changes})


@pytest.mark.parametrize("op", [">=", "<="])
@pytest.mark.parametrize("successes", [0, 37, 40])
def test_counts_are_the_exact_binomial_test(op: str, successes: int) -> None:
    score = MeasuredScore.of_counts(successes, 40)
    exact = stats.binomtest(successes, 40, 0.9, alternative="greater" if op == ">=" else "less")
    assert score.p_value(op, 0.9) == pytest.approx(exact.pvalue, rel=1e-9)
    interval = exact.proportion_ci(0.95, method="exact")
    assert score.bound(op, 0.95) == pytest.approx(interval.low if op == ">=" else interval.high, abs=1e-9)


@pytest.mark.parametrize("op", [">=", "<="])
def test_an_interval_is_the_t_test_that_it_came_from(op: str) -> None:
    values = np.random.default_rng(0).normal(1.0, 1.0, 12)
    found = t_interval(values, 0.9)
    score = MeasuredScore(found.estimate, found.low, found.high, 0.9, 12)
    test = stats.ttest_1samp(values, 0.7, alternative="greater" if op == ">=" else "less")
    assert score.p_value(op, 0.7) == pytest.approx(test.pvalue)
    ends = test.confidence_interval(0.99)
    assert score.bound(op, 0.99) == pytest.approx(ends.low if op == ">=" else ends.high)


def test_a_bound_meets_a_threshold_exactly_where_the_requirement_passes() -> None:
    draw, seen = np.random.default_rng(1), set()
    for _ in range(200):
        scores = {f"m{i}": MeasuredScore.of_counts(int(s), 60) for i, s in enumerate(draw.integers(50, 61, 4))}
        report = gate([asked(metric=name, threshold=0.85, level=draw.choice([0.9, 0.95])) for name in scores], scores)
        for result in report.results:
            assert result.bound is not None
            assert (result.bound >= 0.85) == (result.status == "pass")
            seen.add(result.status)
    assert seen == {"pass", "fail"}


def test_holm_by_hand() -> None:
    """p values .01, .02 and .2: the steps are .05 / 3, .05 / 2 and .05, so that two are met."""
    scores = {}
    for name, p in (("a", 0.02), ("b", 0.2), ("c", 0.01)):
        scores[name] = MeasuredScore(0.0, -stats.norm.isf(0.025), 9.0)
        scores[name] = dataclasses.replace(
            scores[name], estimate=(x := stats.norm.isf(p)), low=x - stats.norm.isf(0.025)
        )
    found = gate([asked(metric=name, threshold=0.0) for name in "abc"], scores)
    assert [r.status for r in found.results] == ["pass", "fail", "pass"]
    assert [r.level for r in found.results] == pytest.approx([1 - 0.05 / 2, 0.95, 1 - 0.05 / 3])
    first_fails = gate([asked(metric=name, threshold=0.3) for name in "abc"], scores)
    assert {r.status for r in first_fails.results} == {"fail"}
    assert {round(r.level, 9) for r in first_fails.results} == {round(1 - 0.05 / 3, 9)}
    alone = gate([asked(metric=name, threshold=0.0) for name in "ab"], scores, corrected=False)
    assert [r.level for r in alone.results] == [0.95, 0.95]


def test_a_level_of_a_half_compares_the_mean() -> None:
    for successes, status in ((45, "pass"), (44, "fail")):
        score = {"m": MeasuredScore(successes / 50, 0.5, 1.0)}
        assert gate([asked(level=0.5)], score).results[0].status == status


@pytest.mark.parametrize(
    ("severity", "known", "verdict"),
    [
        ("high", True, "block"),
        ("high", False, "block"),
        ("medium", True, "block"),
        ("medium", False, "warn"),
        ("low", True, "warn"),
        ("low", False, "warn"),
    ],
)
def test_severities(severity: str, known: bool, verdict: str) -> None:
    scores = {"m": MeasuredScore.of_counts(10, 20)} if known else {"mm": MeasuredScore.of_counts(20, 20)}
    report = gate([asked(severity=severity)], scores)
    assert report.verdict == verdict
    assert report.results[0].status == ("fail" if known else "unknown")
    assert known or "did you mean 'mm'?" in report.results[0].reason
    assert gate([asked(severity=severity)], {"m": MeasuredScore.of_counts(99, 99)}).verdict == "ship"


def test_what_has_no_interval_is_unknown_and_what_is_endless_fails() -> None:
    assert gate([asked()], {"m": MeasuredScore(1.0)}).results[0].status == "unknown"
    endless = gate([asked()], {"m": MeasuredScore(1.0, -math.inf, math.inf, n=1)}).results[0]
    assert (endless.status, endless.bound) == ("fail", -math.inf)


def test_no_requirements_ship_with_a_warning_and_expired_ones_are_named() -> None:
    assert gate([], {}).verdict == "warn"
    assert "no requirements" in gate([], {}).cautions[0]
    old = asked(expires=datetime.date(2020, 1, 1), owner="Ada")
    report = gate([old], {"m": MeasuredScore.of_counts(99, 99)}, today=datetime.date(2020, 1, 2))
    assert "expired on 2020-01-01 and must be reviewed; Ada answers for it" in report.cautions[0]
    assert not gate([old], {"m": MeasuredScore.of_counts(99, 99)}, today=datetime.date(2020, 1, 1)).cautions


def test_a_requirement_that_is_given_twice_is_refused() -> None:
    with pytest.raises(MetricDataError, match=r"'reliability: m >= 0.9' is given twice"):
        gate([asked(), asked(severity="low")], {})
    with pytest.raises(MetricDataError, match="1 requirements need as many scores"):
        GatedRequirements([asked()], [])


ROW = {"attribute": "reliability", "metric": "m", "op": ">=", "threshold": 0.9}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"op": ">"}, "op must be '>=' or '<=', found '>'"),
        ({"threshold": "high"}, "threshold must be a valid number"),
        ({"threshold": None}, "column 'threshold' is missing"),
        ({"level": 0.4}, "level must be greater than or equal to 0.5, found 0.4"),
        ({"severity": "grave"}, "severity must be 'high', 'medium' or 'low', found 'grave'"),
        ({"successes": 3}, "successes and trials must be given together"),
        ({"successes": 3, "trials": 2}, "0 <= successes <= trials, found 3, 2"),
        ({"estimate": 0.5, "low": 0.6}, "low <= estimate <= high must hold"),
        ({"estimate": 0.5, "low": 0.4, "interval_level": 95}, "interval_level must lie between 0 and 1, found 95"),
    ],
)
def test_a_bad_row_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "gate.jsonl"
    file.write_text(json.dumps({**ROW, **changes}))
    with pytest.raises(Exception, match="line 1") as raised:
        measure("tai-sfma", file)
    assert sentence in str(raised.value)


def test_a_file_is_gated(tmp_path: Path) -> None:
    file = tmp_path / "gate.csv"
    file.write_text(
        "attribute,metric,op,threshold,successes,trials,estimate,low,high\n"
        "reliability,pass@1,>=,0.9,198,200,,,\nrisk,violations,<=,0.1,,,0.05,0.04,0.06\nbias,gap,<=,0.1,,,,,\n"
    )
    found = measure("tai-sfma", file)
    assert [found.values[name] for name in ("ship", "passed", "failed", "unknown")] == [0, 2, 0, 1]
    assert any("bias: gap <= 0.1 blocks" in caution for caution in found.cautions)
    interval = found.intervals["reliability: pass@1 >= 0.9"]
    # The interval's p value is the smaller one, so that the counts are compared at the second of Holm's steps.
    assert interval.low == pytest.approx(stats.beta(198, 3).ppf(0.05), rel=1e-6)


def test_problems_of_pydantic_are_sentences() -> None:
    with pytest.raises(ValueError, match="threshold") as raised:
        asked(threshold=math.nan)
    assert sentence_of(raised.value) == "threshold must be a finite number, found nan"  # type: ignore[arg-type]
