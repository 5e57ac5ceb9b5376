import math

import numpy as np
import pytest
import scipy.stats

from polopt.metrics import bootstrap, rate_interval, t_interval, wilson


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
