import math

import numpy as np
import pytest
import scipy.stats

from polopt.metrics import bootstrap, rate_change, rate_interval, t_interval, wilson


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (1, 1), (3, 17), (200, 400), (400, 400)])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_wilson_equals_scipy(successes, n, level):
    ours = wilson(successes, n, level)
    theirs = scipy.stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert ours.low <= ours.estimate <= ours.high


def test_ten_seeds_use_t_2_262():
    x = np.arange(10.0)
    # s^2 of 0..9 is 55/6, so half the width is 2.262 sqrt(55/60).
    result = t_interval(x)
    assert (result.high - result.low) / 2 / math.sqrt(55 / 60) == pytest.approx(2.262, abs=5e-4)
    assert (result.low, result.high) == pytest.approx(
        scipy.stats.t.interval(0.95, 9, loc=x.mean(), scale=scipy.stats.sem(x)), abs=1e-12
    )


def test_one_value_says_nothing_about_spread():
    assert (t_interval([0.4]).low, t_interval([0.4]).high) == (-math.inf, math.inf)


def coverage(draw, truth, runs=2000):
    generator = np.random.default_rng(0)
    intervals = [draw(generator) for _ in range(runs)]
    return np.mean([i.low <= truth <= i.high for i in intervals])


# Four standard errors of a coverage measured on 2,000 runs: 4 sqrt(.95 * .05 / 2000).
ERROR = 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_t_covers_as_often_as_it_says():
    assert coverage(lambda g: t_interval(g.normal(3, 2, 10)), 3) == pytest.approx(0.95, abs=ERROR)


@pytest.mark.parametrize(("p", "n"), [(0.5, 100), (0.1, 200), (0.03, 400)])
def test_wilson_covers_as_its_exact_distribution_says(p, n):
    k = np.arange(n + 1)
    inside = [wilson(s, n).low <= p <= wilson(s, n).high for s in k]
    exact = scipy.stats.binom.pmf(k, n, p) @ np.array(inside)
    # Counts are whole numbers, so no interval hits 95 % exactly; Wilson's oscillates around it.
    assert exact == pytest.approx(0.95, abs=0.02)


def test_the_problem_is_the_unit():
    # Difficulty varies: rates Beta(.5, .5), 8 samples of each of 60 problems. Truth 0.5.
    def draw(generator):
        difficulty = generator.beta(0.5, 0.5, 60)
        return generator.binomial(8, difficulty)

    clustered = coverage(lambda g: rate_interval(draw(g) / 8), 0.5)
    pooled = coverage(lambda g: wilson(draw(g).sum(), 480), 0.5)
    assert clustered == pytest.approx(0.95, abs=ERROR + 0.005)
    assert pooled < 0.7, "taking samples for problems must show as too narrow, else this test shows nothing"


def test_rates_of_zero_and_one_are_a_proportion():
    assert rate_interval([1, 0, 1, 1]) == wilson(3, 4)
    assert rate_interval([1.0] * 50).low < 1, "50 of 50 is not certainty"
    assert rate_interval([0.01, 0.0, 0.2]).low == 0, "cut at 0"


def test_bootstrap_of_a_mean_nears_the_normal_interval():
    x = np.random.default_rng(1).exponential(size=400)
    result = bootstrap(lambda a: a.mean(-1), x, resamples=4000)
    half = 1.96 * x.std() / 20
    assert (result.low, result.high) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.1 * half)
    assert result == bootstrap(lambda a: a.mean(-1), x, resamples=4000)
    assert result != bootstrap(lambda a: a.mean(-1), x, resamples=4000, seed=1)


def test_errors_name_what_was_found():
    with pytest.raises(ValueError, match="found none"):
        t_interval([])
    with pytest.raises(ValueError, match="finite, found nan"):
        t_interval([0.1, math.nan])
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        wilson(1, 2, level=95)
    with pytest.raises(ValueError, match="from 0 to n = 2, found 3"):
        wilson(3, 2)
    with pytest.raises(ValueError, match=r"\[0, 1\], found 1.5"):
        rate_interval([0, 1.5])


def newcombe(pairs, level=0.95):
    """Method 10 of Newcombe 1998 from the table of pairs [[n11, n10], [n01, n00]], with scipy's Wilson intervals."""
    (e, f), (g, h) = pairs
    n = e + f + g + h
    first, second = (
        scipy.stats.binomtest(k, n).proportion_ci(level, method="wilson") for k in (e + f, e + g)
    )  # after, before
    p1, p2 = (e + f) / n, (e + g) / n
    root = math.sqrt((e + f) * (g + h) * (e + g) * (f + h))
    upper = e * h - f * g
    phi = 0.0 if root == 0 else (max(upper - n / 2, 0) if upper > 0 else upper) / root
    dl1, du1, dl2, du2 = p1 - first.low, first.high - p1, p2 - second.low, second.high - p2
    low = p1 - p2 - math.sqrt(dl1**2 - 2 * phi * dl1 * du2 + du2**2)
    return low, p1 - p2 + math.sqrt(dl2**2 - 2 * phi * dl2 * du1 + du1**2)


def lists(pairs):
    (e, f), (g, h) = pairs
    return [1] * e + [0] * f + [1] * g + [0] * h, [1] * e + [1] * f + [0] * g + [0] * h  # before, after


@pytest.mark.parametrize(
    "pairs", [((36, 12), (2, 0)), ((20, 9), (4, 27)), ((3, 9), (8, 1)), ((30, 0), (0, 30)), ((0, 60), (0, 0))]
)
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_paired_change_is_newcombes(pairs, level):
    before, after = lists(pairs)
    found = rate_change(before, after, level)
    assert (found.low, found.high) == pytest.approx(newcombe(pairs, level), abs=1e-9)
    assert found.estimate == pytest.approx((sum(after) - sum(before)) / len(after))
    shuffled = np.random.default_rng(0).permutation(len(before))
    again = rate_change(np.array(before)[shuffled], np.array(after)[shuffled], level)
    assert (again.low, again.high) == pytest.approx((found.low, found.high), abs=1e-12)


def test_problems_of_different_number_are_independent():
    # Newcombe's method for two independent proportions, 56 of 70 against 48 of 80: his example (a), [0.0524, 0.3339].
    found = rate_change([1] * 48 + [0] * 32, [1] * 56 + [0] * 14)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_pairs_sharpen_what_independent_lists_leave_open():
    # 15 of 60 problems changed, 13 of them for the better: McNemar's exact test has p = 0.0074.
    pairs = ((20, 13), (2, 25))
    assert scipy.stats.binomtest(2, 15).pvalue < 0.01
    assert rate_change(*lists(pairs)).low > 0
    before, after = lists(pairs)
    alone = rate_change(before, [*after[::-1]])
    assert alone.estimate == pytest.approx(11 / 60)
    assert alone.low < 0, "the same accuracies of problems that have nothing to do with each other"


@pytest.mark.parametrize("rates", [[0] * 20, [1] * 20, [1, 0] * 10, [0.25, 0.5, 1.0, 0.0]])
def test_equal_lists_have_changed_by_nothing(rates):
    found = rate_change(rates, rates)
    assert found.estimate == 0
    assert found.low <= 0 <= found.high
    if set(rates) <= {0, 1}:
        assert found.low < -0.01, "20 equal problems do not prove that no other changes"
        assert found.high > 0.01


def test_from_none_to_all_is_a_change_by_all():
    found = rate_change([0] * 20, [1] * 20)
    assert (found.estimate, found.high) == (1, 1)
    one = scipy.stats.binomtest(20, 20).proportion_ci(method="wilson").low
    assert found.low == pytest.approx(1 - math.sqrt(2) * (1 - one))


@pytest.mark.parametrize(
    ("before", "after", "rho"), [(0.5, 0.5, 0.0), (0.5, 0.5, 0.8), (0.6, 0.7, 0.7), (0.25, 0.3, 0.8), (0.1, 0.2, 0.3)]
)
def test_a_change_is_covered_as_often_as_it_should_be(before, after, rho):
    n, both = 60, before * after + rho * math.sqrt(before * (1 - before) * after * (1 - after))
    cells = [both, after - both, before - both, 1 - before - after + both]
    generator = np.random.default_rng(0)

    def draw(_):
        e, f, g, h = generator.multinomial(n, cells)
        return rate_change(*lists(((e, f), (g, h))))

    assert coverage(draw, after - before) >= 0.95 - ERROR


@pytest.mark.parametrize(("n", "m"), [(60, 200), (200, 60)])
def test_a_change_of_independent_lists_is_covered(n, m):
    draw = lambda g: rate_change(g.random(n) < 0.4, g.random(m) < 0.6)  # noqa: E731
    assert coverage(draw, 0.2) >= 0.95 - ERROR


def test_a_change_of_rates_of_several_samples_is_a_paired_t():
    generator = np.random.default_rng(0)
    difficulty = generator.beta(4, 4, 80)
    before, after = generator.binomial(8, difficulty) / 8, generator.binomial(8, np.minimum(difficulty + 0.05, 1)) / 8
    found, paired = rate_change(before, after), t_interval(after - before)
    assert (found.estimate, found.low, found.high) == pytest.approx(
        (paired.estimate, paired.low, paired.high), abs=1e-9
    )
