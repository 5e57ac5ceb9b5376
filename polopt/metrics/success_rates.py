"""Success rates of two or more policies on one or more tasks: posteriors, and exact tests for one look."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.intervals import Interval

Numbers = NDArray[np.float64]
# Samples of the posterior of a mean over tasks: the ends of a 95 % interval are exact to about 0.01 of its length.
DRAWS = 20_000


def beta_posterior(successes: int, n: int, level: float = 0.95) -> Interval:
    """Posterior of a success rate under a uniform prior, Beta(1 + s, 1 + n - s): its mean (1 + s) / (2 + n), and the
    interval between its quantiles. It holds at one look, as does every posterior.

    Raises:
        ValueError: successes outside 0..n, or a level outside (0, 1).
    """
    if not 0 <= successes <= n or not 0 < level < 1:
        raise ValueError(f"beta_posterior: needs 0 <= successes <= n and a level, found {successes}, {n}, {level}")
    from scipy.special import betaincinv

    ends = betaincinv(1 + successes, 1 + n - successes, [(1 - level) / 2, (1 + level) / 2])
    return Interval((1 + successes) / (2 + n), float(ends[0]), float(ends[1]), level, n)


def rate_samples(successes: ArrayLike, trials: ArrayLike, stream: int = 0) -> Numbers:
    """Returns samples of the mean of several rates under their posteriors, [DRAWS], from counts [tasks] each.

    stream: samples of other streams are independent, so that their differences are those of independent rates.
    """
    s, n = np.asarray(successes), np.asarray(trials)
    uniform = np.random.default_rng([stream, 1]).random((DRAWS, len(s)))
    from scipy.special import betaincinv

    found: Numbers = betaincinv(1 + s, 1 + n - s, uniform).mean(-1)
    return found


def exact_difference_p(successes: ArrayLike, trials: ArrayLike) -> float:
    """Returns the two-sided p value of equal success rates on every task, exact, from counts [2, tasks] of two
    policies: Barnard's test on one task, and on several the conditional one, stratified by task.

    Given each task's successes of both policies together, those of the first one are hypergeometric; the p value is the
    probability of all totals over the tasks that are at most as likely as the observed one. With one task that is
    Fisher's test. Counts are never pooled over tasks. It holds at a number of trials that was decided beforehand.

    Raises:
        ValueError: counts that are not [2, tasks], or successes outside 0..trials.

    Source: Barnard 1945, "A New Test for 2x2 Tables"; the stratified one is the exact form of Mantel and Haenszel 1959.
    """
    s, n = np.asarray(successes, int), np.asarray(trials, int)
    if s.shape != n.shape or s.ndim != 2 or len(s) != 2 or (s < 0).any() or (s > n).any():
        raise ValueError(f"exact_difference_p: needs counts [2, tasks], 0 <= s <= n, found {s.tolist()}, {n.tolist()}")
    if s.shape[1] == 1:
        return _barnard(*map(int, (s[0, 0], s[1, 0], n[0, 0], n[1, 0])))
    from scipy.stats import hypergeom

    chances, total = np.ones(1), 0
    for (one, other), (tried, others) in zip(s.T.tolist(), n.T.tolist(), strict=True):
        least = max(0, one + other - others)
        most = min(tried, one + other)
        chances = np.convolve(chances, hypergeom(tried + others, one + other, tried).pmf(np.arange(least, most + 1)))
        total += one - least
    return float(min(1.0, chances[chances <= chances[total] * (1 + 1e-7)].sum()))


@functools.cache
def _barnard(one: int, other: int, tried: int, others: int) -> float:
    from scipy.stats import barnard_exact

    if min(tried, others) == 0 or one + other in (0, tried + others):
        return 1.0  # scipy's statistic is not a number there
    return float(min(1.0, barnard_exact([[one, other], [tried - one, others - other]]).pvalue))
