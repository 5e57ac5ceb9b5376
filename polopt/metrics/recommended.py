"""Measures of recommendations: of one user's list, of one list's items, and of all lists together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.intervals import Interval
from polopt.metrics.jackknife import jackknife

Numbers = NDArray[np.float64]
# The jackknife leaves out this many groups of users in turn, single users where there are fewer.
GROUPS = 50


def discounts(n: int) -> Numbers:
    """Returns 1 / log2(i + 1) of the places i = 1, ..., n."""
    found: Numbers = 1 / np.log2(np.arange(n) + 2.0)
    return found


def dcg(score: Numbers, gain: Numbers, k: int) -> float:
    """Returns sum_{i <= k} gain_i / log2(i + 1) of one list, the highest score first, [n] each; of equal scores the
    mean over their orders."""
    order = np.argsort(-score, kind="stable")
    group = np.cumsum(np.append(0, np.diff(score[order]) != 0))
    mean = np.bincount(group, gain[order]) / np.bincount(group)
    return float(mean[group][:k] @ discounts(len(score))[:k])


def ideal_dcg(gain: Numbers, k: int) -> float:
    """Returns the DCG of the best order of the items."""
    return dcg(gain, gain, k)


class RankedRelevance:
    """Where the relevant items of one list are, with equal scores in random order; places i = 1, ..., n.

    score, relevant: [n] each, the list in any order.
    """

    def __init__(self, score: Numbers, relevant: NDArray[np.bool_]) -> None:
        order = np.argsort(-score, kind="stable")
        group = np.cumsum(np.append(0, np.diff(score[order]) != 0))
        size = np.bincount(group)
        hits = np.bincount(group, relevant[order]).astype(float)
        place = np.arange(len(score)) - (np.cumsum(size) - size)[group]  # within the group, from 0
        before = (np.cumsum(hits) - hits)[group]
        n, r = size[group].astype(float), hits[group]
        self.total = float(hits.sum())
        self.at = r / n
        # E[relevant among the first i | i relevant], and P(none relevant among the first i)
        self.count = before + 1 + place * (r - 1) / np.maximum(n - 1, 1)
        steps = np.where(r < n - place, (n - r - place) / (n - place), 0.0)
        self.none = np.cumprod(steps)

    def at_k(self, k: int) -> dict[str, float]:
        """Returns the expectations of the measures of the first k places."""
        places = np.arange(1, len(self.at) + 1)[:k]
        first = -np.diff(self.none[:k], prepend=1.0)
        return {
            "precision": float(self.at[:k].sum()) / k,
            "hit rate": 1 - float(self.none[:k][-1]),
            "MRR": float((first / places).sum()),
        } | {name: quotient(*terms) for name, terms in self.fractions(k).items()}

    def fractions(self, k: int) -> dict[str, tuple[float, float]]:
        """Returns the numerators and denominators of those measures whose denominator depends on the list."""
        places = np.arange(1, len(self.at) + 1)[:k]
        hits = float(self.at[:k].sum())
        precision = float((self.at[:k] * self.count[:k] / places).sum())
        return {
            "recall": (hits, self.total),
            "F1": (2 * hits, k + self.total),
            "MAP": (precision, min(self.total, k)),
        }


def quotient(above: float, below: float) -> float:
    """Returns above / below, and 0 without a denominator."""
    return above / below if below else 0.0


def gini(exposure: Numbers) -> float:
    """Returns the Gini coefficient of exposures [n] >= 0: 0 where all are equal, 1 - 1 / n where one has all."""
    x, n = np.sort(exposure), len(exposure)
    return float((2 * np.arange(1, n + 1) - n - 1) @ x / (n * x.sum()))


def intra_list_similarity(features: Numbers) -> float:
    """Returns the mean cosine of all pairs of a list's items, features [n, D]; NaN of fewer than two. A vector of zeros
    has the cosine 0 with all."""
    n = len(features)
    if n < 2:
        return float("nan")
    norm = np.linalg.norm(features, axis=1, keepdims=True)
    unit = features / np.where(norm > 0, norm, 1)
    total = float((unit.sum(0) ** 2).sum() - (unit**2).sum())
    return total / (n * (n - 1))


def personalisation(taken: Numbers) -> float:
    """Returns 1 - the mean cosine of all pairs of users' lists, as vectors [U, I] of 0 and 1; NaN of fewer than two."""
    return 1 - intra_list_similarity(taken)


def jackknife_of_users(statistic: Callable[[NDArray[np.int64]], float], users: int, level: float) -> Interval:
    """Returns `statistic(users)` [n] of all users with the interval of the jackknife over groups of them.

    A statistic that is not a number without a group, or one user, has the whole line for its interval.
    """
    everyone = np.arange(users)
    value, groups = statistic(everyone), min(users, GROUPS)
    without = [statistic(everyone[everyone % groups != i]) for i in range(groups)] if groups > 1 else [np.nan]
    if not np.isfinite(without).all() or not np.isfinite(value):
        return Interval(value, -np.inf, np.inf, level, users)
    return dataclasses.replace(jackknife(value, without, level), n=users)
