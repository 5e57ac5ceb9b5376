import itertools
import math

import numpy as np
import pytest
import scipy.stats

from polopt.metrics import (
    Comparison,
    MethodRuns,
    bootstrap,
    detectable_difference,
    holm,
    improvement,
    iqm,
    mean_difference_p,
    paired_difference,
    permutation_p,
    power,
    probability_of_improvement,
    seeds_needed,
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


@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["some worse", "all better"])
def test_the_ends_solve_newcombes_equation(shift):
    x, y = [0.6 + shift, 0.7, 0.8, 0.4 + shift, 0.9, 0.65, 0.5 + shift], [0.5, 0.45, 0.55, 0.3, 0.62]
    got, k = probability_of_improvement(x, y, 0.9), 5
    assert (got.estimate, got.high) == (1, 1) if shift else got.high < 1
    assert got.low < got.estimate
    for end in (got.low, got.high) if not shift else (got.low,):
        variance = end * (1 - end) * (1 + k * (1 - end) / (2 - end) + k * end / (1 + end)) / 35
        assert abs(got.estimate - end) == pytest.approx(scipy.stats.norm.ppf(0.95) * math.sqrt(variance), abs=1e-9)
    mirrored = probability_of_improvement(y, x, 0.9)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((got.low, got.high), abs=1e-9)


@pytest.mark.parametrize("values", [(X, Y), ([1, 2, 2, 3], [2, 2, 5]), ([0.0] * 3, [0.0] * 4), (X[:3], Y[:3] + 9)])
def test_permutation_p_counts_all_splits(values):
    x, y = (np.asarray(v, float) for v in values)
    pooled, n = np.concatenate([x, y]), len(x)
    observed = abs(improvement(x, y) - 0.5)
    splits = [
        abs(improvement(pooled[list(chosen)], np.delete(pooled, list(chosen))) - 0.5) >= observed - 1e-12
        for chosen in itertools.combinations(range(len(pooled)), n)
    ]
    assert permutation_p(x, y) == pytest.approx(np.mean(splits), abs=1e-12)
    if len(set(pooled)) == len(pooled):
        assert permutation_p(x, y) == pytest.approx(scipy.stats.mannwhitneyu(x, y, method="exact").pvalue, abs=1e-12)


def test_three_seeds_cannot_tell_and_four_can():
    assert probability_of_improvement([7, 8, 9], [1, 2, 3]).low == 0.5
    assert probability_of_improvement([6, 7, 8, 9], [1, 2, 3, 4]).low > 0.5
    assert probability_of_improvement([4, 7, 8, 9], [1, 2, 3, 5]).low == 0.5


def test_p_values_equal_scipys():
    assert mean_difference_p(X, Y, paired=False) == pytest.approx(
        scipy.stats.ttest_ind(X, Y, equal_var=False).pvalue, rel=1e-9
    )
    assert mean_difference_p(X[:5], Y, paired=True) == pytest.approx(scipy.stats.ttest_rel(X[:5], Y).pvalue, rel=1e-9)
    assert mean_difference_p([1.0], [0.0], paired=True) == 1
    assert mean_difference_p([1.0, 2.0], [0.0, 1.0], paired=True) == 0
    assert mean_difference_p([1.0, 1.0], [1.0, 1.0], paired=False) == 1


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == [True, False, False]  # 0.03 > 0.05 / 2
    assert holm([0.01, 0.04, 0.02]) == [True, True, True]
    assert holm([0.02, 0.9]) == [True, False]
    assert holm([]) == []


def test_power_is_the_share_of_simulated_comparisons() -> None:
    draws = np.random.default_rng(0).normal(0.5, 1.0, (2000, 12))
    found = np.mean([not (i := paired_difference(d, np.zeros(12))).low <= 0 <= i.high for d in draws])
    assert power(0.5, 1.0, 12) == pytest.approx(found, abs=4 * math.sqrt(0.25 / 2000))
    assert power(0.0, 1.0, 7) == pytest.approx(0.05, abs=1e-9)
    assert power(3.0, 1.0, 1) == 0


def test_seeds_needed_is_the_least_number() -> None:
    for difference in (0.3, 1.0, -2.5):
        n = seeds_needed(difference, 1.0)
        assert power(difference, 1.0, n) >= 0.8 > power(difference, 1.0, n - 1)
    with pytest.raises(ValueError, match="needs a difference"):
        seeds_needed(0.0, 1.0)
    with pytest.raises(ValueError, match="over 100,000 seeds"):
        seeds_needed(1e-4, 1.0)
    with pytest.raises(ValueError, match="deviation must be > 0, found 0"):
        seeds_needed(0.1, 0.0)


OUTCOMES = {
    "normal": lambda g, shape: g.normal(0.6, 0.1, shape),
    "skewed": lambda g, shape: g.exponential(0.1, shape),
    "near the ceiling": lambda g, shape: g.binomial(100, 0.97, shape) / 100,
    "a fifth collapse": lambda g, shape: np.where(g.random(shape) < 0.2, 0.1, g.normal(0.7, 0.02, shape)),
}


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_equal_methods_seldom_differ(outcome: str, n: int) -> None:
    """A/A through `Comparison.table`, nominal 5 %: each of both flags stays within the simulation's own error of it."""
    draws, repeats = OUTCOMES[outcome](np.random.default_rng(n), (1000, 2, n)), 1000
    flags = np.zeros(2)
    for a, b in draws:
        seeds = list(range(n))
        row = Comparison([MethodRuns("a", seeds, list(a)), MethodRuns("b", seeds, list(b))], unit="x").table()[1]
        flags += [
            not row.difference.low <= 0 <= row.difference.high,
            not row.improvement.low <= 0.5 <= row.improvement.high,
        ]
    most = scipy.stats.binom(repeats, 0.055).ppf(0.999)
    assert (flags <= most).all(), flags / repeats
    if n == 3:
        assert flags[1] == 0


def test_an_interval_that_is_too_narrow_would_be_seen() -> None:
    """A percentile bootstrap of the same probability tells equal methods apart more often than that test allows."""
    repeats, found = 300, 0
    for a, b in np.random.default_rng(3).normal(size=(repeats, 2, 5)):
        interval = bootstrap(improvement, a, b, resamples=500)
        found += not interval.low <= 0.5 <= interval.high
    assert found > scipy.stats.binom(repeats, 0.055).ppf(0.95)


def test_a_table_of_equal_methods_seldom_has_a_star() -> None:
    """Twenty equal methods against one: some interval leaves out 0 in most tables, a star stands in few."""
    generator, tables, seeds = np.random.default_rng(0), 120, list(range(5))
    some, starred = 0, 0
    for _ in range(tables):
        methods = [MethodRuns(f"m{i}", seeds, list(generator.normal(size=5))) for i in range(21)]
        rows = Comparison(methods, unit="x").table()[1:]
        some += any(not row.difference.low <= 0 <= row.difference.high for row in rows)
        starred += any(row.significant for row in rows)
    assert some > tables / 3
    assert starred <= scipy.stats.binom(tables, 0.05).ppf(0.999)


def test_intervals_of_shares_are_shares() -> None:
    seeds = [1, 2, 3]
    near = [MethodRuns("a", seeds, [0.99, 1.0, 0.9]), MethodRuns("b", seeds, [0.02, 0.0, 0.3])]
    first, second = Comparison(near).table()
    assert (first.final.high, second.final.low) == (1.0, 0.0)
    assert second.difference.low >= -1
    assert Comparison(near, unit="return").table()[0].final.high > 1


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


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_detectable_difference_is_found_four_times_in_five(seeds):
    size = detectable_difference(seeds)
    assert power(size, 1.0, seeds) == pytest.approx(0.8)
    draws = np.random.default_rng(seeds).normal(size, 1.0, (4000, seeds))
    found = scipy.stats.ttest_1samp(draws, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.025)
    assert detectable_difference(1) == math.inf
    with pytest.raises(ValueError, match="probability must be in"):
        detectable_difference(5, 0.01)
