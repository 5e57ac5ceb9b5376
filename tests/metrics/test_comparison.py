import itertools
import math

import numpy as np
import pytest
import scipy.stats

from polopt.metrics import (
    Comparison,
    MethodRuns,
    improvement,
    iqm,
    paired_difference,
    probability_of_improvement,
    welch_difference,
)

X = np.random.default_rng(0).normal(0.6, 0.05, 7)
Y = np.random.default_rng(1).normal(0.5, 0.02, 5)


def test_welch_equals_scipy():
    ours = welch_difference(X, Y, 0.9)
    theirs = scipy.stats.ttest_ind(X, Y, equal_var=False).confidence_interval(0.9)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_pairing_equals_scipy_and_removes_what_seeds_share():
    shared = np.random.default_rng(2).normal(size=8)
    noise = np.random.default_rng(3).normal(0, 0.01, 8)
    x, y = shared + 0.1 + noise, shared
    ours = paired_difference(x, y)
    theirs = scipy.stats.ttest_rel(x, y).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert ours.low > 0 > welch_difference(x, y).low


def test_welch_needs_two_seeds_a_side():
    assert welch_difference([0.5], Y).high == math.inf
    assert welch_difference([1, 1], [0, 0]).low == 1


def test_improvement_counts_pairs_and_halves_ties():
    x, y = [3, 1, 2, 2], [2, 0, 5]
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(x, y)]
    got = probability_of_improvement(x, y)
    assert got.estimate == pytest.approx(np.mean(pairs), abs=1e-15)
    assert got.estimate == pytest.approx(scipy.stats.mannwhitneyu(x, y).statistic / 12, abs=1e-15)
    assert got.low <= got.estimate <= got.high


def test_improvement_interval_equals_scipys_bootstrap():
    ours = probability_of_improvement(X, Y + 0.08, resamples=8000)
    theirs = scipy.stats.bootstrap(
        (X, Y + 0.08),
        lambda a, b, axis=-1: improvement(a, b),
        method="percentile",
        n_resamples=8000,
        random_state=np.random.default_rng(5),
        vectorized=True,
    ).confidence_interval
    # One step of the estimate is 1/35; both ends may land a step apart.
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1 / 35)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 10])
def test_iqm_leaves_out_a_quarter_at_each_end(n):
    x = np.random.default_rng(n).normal(size=(2, n))
    kept = [sorted(row)[n // 4 : n - n // 4] for row in x]
    assert iqm(x) == pytest.approx([sum(k) / len(k) for k in kept], abs=1e-15)


def test_comparison_pairs_by_seed_not_by_place():
    # The same runs, the second method's listed backwards: the difference is 0.1 for every seed.
    data = {
        "methods": [
            {"name": "grpo", "seeds": [1, 2, 3], "final": [0.2, 0.5, 0.8]},
            {"name": "bnpo", "seeds": [3, 2, 1], "final": [0.9, 0.6, 0.3]},
            {"name": "rloo", "seeds": [7, 8], "final": [0.5, 0.7]},
        ],
        "differences": [],
    }
    first, second, third = Comparison.from_dict(data).table()
    assert first.difference is None
    assert second.paired is True
    assert (second.difference.low, second.difference.high) == pytest.approx((0.1, 0.1), abs=1e-12)
    assert third.paired is False
    assert third.difference == welch_difference([0.5, 0.7], [0.2, 0.5, 0.8])


def test_band_uses_the_steps_every_seed_reached():
    trials = MethodRuns("grpo", [1, 2], [0.4, 0.6], [[(0, 0.1), (5, 0.4)], [(0, 0.3), (5, 0.5), (10, 0.6)]])
    band = trials.band()
    assert [s for s, _ in band] == [0, 5]
    assert band[0][1].estimate == pytest.approx(0.2)
    # Half the width is t(1) s / sqrt 2 = 12.706 * |x - y| / 2.
    assert band[1][1].high - 0.45 == pytest.approx(12.7062 * 0.05, rel=1e-4)


def test_errors_name_what_was_found():
    with pytest.raises(ValueError, match=r"'grpo': needs one final accuracy.*2 final"):
        MethodRuns("grpo", [1], [0.1, 0.2])
    with pytest.raises(ValueError, match="a name of its own"):
        Comparison([MethodRuns("a", [1], [0.1]), MethodRuns("a", [1], [0.1])])
    with pytest.raises(ValueError, match="found 7 and 5"):
        paired_difference(X, Y)
