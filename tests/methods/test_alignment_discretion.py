"""The audit of annotators against loops, closed forms and SciPy's optimiser."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

from polopt.config import ConfigError
from polopt.methods.alignment_discretion import alignment_discretion
from polopt.metrics import MetricDataError, PrinciplePreferences, both_orders, discretion_discrepancy, priorities
from polopt.training import measuring

NAN = math.nan


def log(seed: int, n: int = 300, k: int = 5) -> PrinciplePreferences:
    draw = np.random.default_rng(seed)
    votes = draw.choice([-1.0, 1.0, NAN], p=[0.4, 0.2, 0.4], size=(n, k))
    labels = draw.choice([-1.0, 1.0, NAN], p=[0.4, 0.5, 0.1], size=(n, 3))
    labels[:, 1] = np.where(draw.random(n) < 0.8, votes[:, 0], labels[:, 1])
    return PrinciplePreferences(votes, labels)


def test_shares_by_loops() -> None:
    data = log(0)
    found = alignment_discretion(resamples=50, priority_resamples=2)(data).values
    cases = {"consensus": 0, "conflict": 0, "indifference": 0}
    against, asked = [0] * 3, [0] * 3
    for votes, labels in zip(data.principles, data.annotators, strict=True):
        seen = {int(v) for v in votes if not math.isnan(v)}
        cases[{0: "indifference", 1: "consensus", 2: "conflict"}[len(seen)]] += 1
        if len(seen) == 1:
            (one,) = seen
            for m, label in enumerate(labels):
                asked[m] += not math.isnan(label)
                against[m] += label == -one
    for name, count in cases.items():
        assert found[name] == pytest.approx(count / 300)
    for m in range(3):
        assert found[f"arbitrariness of annotator {m + 1}"] == pytest.approx(against[m] / asked[m])


def test_supremacy_by_loops() -> None:
    data = log(1)
    found, conflicts = alignment_discretion().supremacy(data)
    for m, i, j in itertools.product(range(3), range(5), range(5)):
        rows = [
            (p[i], a[m])
            for p, a in zip(data.principles, data.annotators, strict=True)
            if p[i] * p[j] < 0 and not math.isnan(a[m])
        ]
        assert conflicts[m, i, j] == len(rows)
        if rows:
            assert found[m, i, j] == pytest.approx(sum(p == a for p, a in rows) / len(rows))
        else:
            assert math.isnan(found[m, i, j])


def test_weights_are_those_of_scipy() -> None:
    draw = np.random.default_rng(2)
    for k in (2, 3, 6):
        counts = draw.integers(1, 30, (k, k)).astype(float)
        np.fill_diagonal(counts, 0)

        def loss(w: np.ndarray, counts: np.ndarray = counts) -> float:
            return float((counts * np.logaddexp(0, w[None] - w[:, None])).sum() + w.sum() ** 2)

        expected = optimize.minimize(loss, np.zeros(k), method="BFGS", options={"gtol": 1e-9}).x
        found = priorities(counts)
        np.testing.assert_allclose(found.weight, expected - expected.mean(), atol=1e-5)
        assert found.tier.tolist() == [0] * k
        assert found.rank.tolist() == (-expected).argsort().argsort().__add__(1).tolist()
    two = priorities([[0, 9], [3, 0]])
    assert two.weight[0] - two.weight[1] == pytest.approx(math.log(3))


def test_infinite_weights_are_tiers() -> None:
    # 0 and 1 beat each other and all others; 2 and 3 likewise beat 4 alone; 5 meets nobody.
    counts = np.zeros((6, 6))
    counts[0, 1], counts[1, 0] = 3, 1
    counts[2, 3], counts[3, 2] = 1, 2
    counts[0, 2] = counts[1, 3] = counts[2, 4] = counts[3, 4] = 5
    found = priorities(counts)
    assert found.tier.tolist() == [0, 0, 1, 1, 2, -1]
    assert found.rank[:5].tolist() == [1, 2, 4, 3, 5]
    assert math.isnan(found.rank[5])
    assert found.connected
    assert np.isneginf(found.weight[4])
    # The authors' case: one that always wins and one that always loses.
    one = priorities([[0, 4, 4, 4], [0, 0, 2, 3], [0, 1, 0, 3], [0, 0, 0, 0]])
    assert np.isposinf(one.weight[0])
    assert np.isneginf(one.weight[3])
    assert one.weight[1] - one.weight[2] == pytest.approx(math.log(2))


def test_what_no_conflict_compares_is_said() -> None:
    counts = np.zeros((4, 4))
    counts[0, 1] = counts[1, 0] = counts[2, 3] = counts[3, 2] = 2
    found = priorities(counts)
    assert not found.connected
    assert found.rank.tolist() == [2.5] * 4
    data = PrinciplePreferences([[1, -1, NAN], [-1, 1, NAN]], [[1], [1]], ("a", "b", "c"), ("me",))
    cautions = alignment_discretion()(data).cautions
    assert cautions == ("me labels no conflict of c, which have no rank",)


def test_discrepancy_counts_inversions() -> None:
    draw = np.random.default_rng(3)
    for _ in range(20):
        a, b = draw.permutation(7), draw.permutation(7)
        turned = sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in itertools.combinations(range(7), 2))
        assert discretion_discrepancy(a, b) == pytest.approx(turned / 21)
    assert discretion_discrepancy([1, 2, NAN], [1, 2, 3]) == 0
    assert math.isnan(discretion_discrepancy([1, NAN], [1, 2]))


def test_intervals_hold_the_truth_about_as_often_as_they_promise() -> None:
    draw, held = np.random.default_rng(4), 0
    audit = alignment_discretion(resamples=300, priority_resamples=1)
    for _ in range(100):
        votes = np.ones((200, 1))
        label = np.where(draw.random(200) < 0.3, -1.0, 1.0)
        interval = audit(PrinciplePreferences(votes, label[:, None])).intervals["arbitrariness of annotator 1"]
        held += interval.low <= 0.3 <= interval.high
    assert 87 <= held <= 100


def test_discrepancy_has_an_interval_and_repeats() -> None:
    audit = alignment_discretion(resamples=20, priority_resamples=20)
    one, two = audit(log(5)), audit(log(5))
    assert one.values == two.values
    interval = one.intervals["discrepancy of annotator 1 and annotator 2"]
    assert 0 <= interval.low <= interval.high <= 1
    assert interval.low < interval.high


def test_both_orders_of_a_judge() -> None:
    found = both_orders([1, 1, -1, NAN, 0], [-1, 1, 1, -1, 0])
    np.testing.assert_array_equal(found, [1, NAN, -1, NAN, NAN])


def test_files(tmp_path: Path) -> None:
    rows = [
        {"principles": {"honest": 1, "brief": -1}, "annotators": {"ann": 1}},
        {"principles": {"honest": 1, "brief": None}, "annotators": {"ann": -1, "bob": 1}},
    ]
    file = tmp_path / "votes.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = measuring.measure("alignment-discretion", file, resamples=10).values
    assert found["arbitrariness of ann"] == 1
    assert found["arbitrariness of bob"] == 0
    assert found["rank of honest for ann"] == 1
    table = tmp_path / "votes.csv"
    table.write_text("principles.honest,principles.brief,annotators.ann,annotators.bob\n1,-1,1,\n1,,-1,1\n")
    assert measuring.measure("alignment-discretion", table, resamples=10).values == found
    file.write_text(json.dumps({**rows[0], "annotators": {"ann": 2}}))
    with pytest.raises(ConfigError, match=r"line 1: annotators\.ann must be 1, -1, or 0 or empty for neither, found 2"):
        measuring.measure("alignment-discretion", file)
    file.write_text(json.dumps({"annotators": {"ann": 1}}))
    with pytest.raises(ConfigError, match="principles is missing"):
        measuring.measure("alignment-discretion", file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, -1], [[1], [1]]), r"principles must be \[N, K\]"),
        (([[1], [0.5]], [[1], [1]]), "principles must be 1, -1, or 0 or NaN"),
        (([[1]], [[1], [1]]), "one N, found 1 and 2"),
        (([[1, 1]], [[1]], ("a", "a")), "principle_names must be 2 different names"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message) -> None:
    with pytest.raises(MetricDataError, match=message):
        PrinciplePreferences(*arguments)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="level in"):
        alignment_discretion(level=1.0)
    with pytest.raises(ValueError, match=r"counts must be \[K, K\]"):
        priorities([[1, 2]])
