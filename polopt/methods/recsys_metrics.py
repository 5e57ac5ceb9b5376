"""Metrics of recommendations: of lists of items that were ranked for users."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, t_interval
from polopt.metrics.feedback import auroc
from polopt.metrics.recommended import (
    RankedRelevance,
    dcg,
    gini,
    ideal_dcg,
    intra_list_similarity,
    jackknife_of_users,
    personalisation,
    quotient,
)
from polopt.metrics.recommended_rows import RECOMMENDED_ROWS, Numbers, Recommendations

Lists = list[NDArray[np.int64]]
# Measure -> its numerator and denominator, of one list.
Fractions = dict[str, tuple[float, float]]
# The measures whose denominator depends on the list.
MICRO = ("recall", "F1", "MAP", "NDCG", "AUC")


@method(
    paper=Paper(
        title="A Comprehensive Survey of Evaluation Techniques for Recommendation Systems",
        authors="Jadon, Aryan and Patil, Avinash",
        year=2023,
        arxiv="2312.16015",
    ),
    changes="Measures lists of recommended items: their order, their errors, and their variety, with intervals over "
    "users; from clicks, weighed by how likely their place is to be examined.",
    room="metrics",
    tier="reading",
)
def recsys_metrics(
    *, k: Sequence[int] = (1, 5, 10, 20), threshold: float = 1.0, linear: bool = False, keep_empty: bool = False,
    catalogue: int | None = None, level: float = 0.95,
) -> RecommendationMetrics:  # fmt: skip
    """Means over users of each list's first k places i, with rel_i the relevance, R relevant items, P_i the precision:

        NDCG_k = DCG_k / IDCG_k,    DCG_k = sum_{i <= k} (2^{rel_i} - 1) / log2(i + 1)
        AP_k = sum_{i <= k} P_i [rel_i >= threshold] / min(R, k)

    precision@k, recall@k, F1@k, hit rate@k, MRR@k (the first relevant place's reciprocal), MAP@k, and AUC. Equal scores
    count as the mean over their orders. RMSE, MAE and MAPE of the column `prediction`, the last without rows of
    relevance 0.

    These means count each user alike (macro). Recall, F1, MAP, NDCG and AUC have one more average, named
    `recall@5, micro`: the sum over users of their numerators over that of their denominators, so that a user counts by
    its relevant items (F1: those and k; MAP: k at most; NDCG: IDCG_k; AUC: pairs of a relevant item and another). Where
    all denominators are equal both are one number: always for precision, hit rate and MRR, which have no second one.
    RMSE, MAE and MAPE are over rows, thus micro.

    Of all lists: coverage@k, the share of the catalogue in the first k of some user; personalisation@k, 1 - the mean
    cosine of two users' lists; Gini@k of the items' numbers of lists. With `features` intra-list similarity@k, the mean
    cosine of a list's items; with `popularity` novelty@k, the mean of -log2 of it, and serendipity@k, the share of
    items that are relevant and not among the k most popular.

    With `propensity` relevance is clicks, or rates of them: DCG@k, IPS weighs each by 1 / propensity, with linear gain,
    and is unbiased where the propensities are right. NDCG@k, IPS is the ratio of its sum over users and of that of the
    best order of the weighed clicks; it is consistent, and too low where an item has few impressions, as noise makes
    the best order look better. Measures that need to know which items are relevant are left out.

    k: numbers of places. threshold: the relevance from which an item is relevant.
    linear: gain rel_i in place of 2^rel_i - 1.
    keep_empty: users without relevant items count, as 0; False leaves them out of what depends on relevance.
    catalogue: number of items; None those of the rows.
    level: of the intervals, Student's of means over users, the jackknife's over users of ratios.

    Ties, the propensities and the intervals are not the survey's. CTR, conversion or retention of another policy are
    policy values: `pdis` or `doubly-robust`.
    """
    return RecommendationMetrics(
        k=tuple(k), threshold=threshold, linear=linear, keep_empty=keep_empty, catalogue=catalogue, level=level
    )


class RecommendationMetrics(Metric):
    """Measures of ranked lists; settings as those of the method `recsys-metrics`.

    Values are named `precision@5` and so on.
    """

    k: tuple[int, ...] = (1, 5, 10, 20)
    threshold: float = 1.0
    linear: bool = False
    keep_empty: bool = False
    catalogue: int | None = None
    level: float = 0.95

    rows = RECOMMENDED_ROWS

    def setup(self) -> None:
        where = "methods.recsys_metrics.RecommendationMetrics"
        if not self.k or min(self.k) < 1:
            raise ValueError(f"{where}: k must be numbers of places from 1 on, found {self.k}")
        if not self.threshold > 0:
            raise ValueError(f"{where}: threshold must be > 0, found {self.threshold}")
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")
        if self.catalogue is not None and self.catalogue < 1:
            raise ValueError(f"{where}: catalogue must be >= 1, found {self.catalogue}")

    def measure(self, data: Recommendations) -> Measured:
        """Measures all lists. A number without a user or row to compute it from is left out."""
        lists = data.lists()
        fractions = [self.fractions(data, rows) for rows in lists]
        each = self.by_user(data, lists, fractions)
        intervals = {name: t_interval(x, self.level) for name, x in each.items() if len(x)}
        intervals |= self.micro(fractions) | self.errors(data, lists) | self.of_all(data, lists)
        if data.propensity is not None:
            intervals |= self.weighed(data, lists)
        values = {name: interval.estimate for name, interval in intervals.items()} | self.coverage(data, lists)
        return Measured(values, intervals, each, tuple(self.doubts(data, lists)))

    def by_user(self, data: Recommendations, lists: Lists, fractions: list[Fractions]) -> dict[str, Numbers]:
        """Returns the measures of each list, of the users that count."""
        found: dict[str, list[float]] = {}
        usual = {} if data.popularity is None else {k: self.most_popular(data, k) for k in self.k}
        for rows, of_list in zip(lists, fractions, strict=True):
            each = {name: quotient(*terms) for name, terms in of_list.items()}
            for name, value in {**each, **self.variety(data, rows, usual)}.items():
                found.setdefault(name, []).append(value)
        return {name: np.array(values) for name, values in found.items()}

    def fractions(self, data: Recommendations, rows: NDArray[np.int64]) -> Fractions:
        """Returns what depends on the relevance of one list's items, as numerators and denominators."""
        relevant = data.relevance[rows] >= self.threshold
        if data.propensity is not None or not (relevant.any() or self.keep_empty):
            return {}
        score, found = data.score[rows], Fractions()
        ranked, gain = RankedRelevance(score, relevant), self.gain(data.relevance[rows])
        for k in self.k:
            every = {name: (value, 1.0) for name, value in ranked.at_k(k).items()} | ranked.fractions(k)
            found |= {f"{name}@{k}": terms for name, terms in every.items()}
            found[f"NDCG@{k}"] = dcg(score, gain, k), ideal_dcg(gain, k)
        area, pairs = auroc(score, relevant), float(relevant.sum() * (~relevant).sum())
        return {**found, "AUC": (area * pairs, pairs)} if pairs else found

    def micro(self, fractions: list[Fractions]) -> dict[str, Interval]:
        """Returns the sum over users of a measure's numerators over that of its denominators."""
        found: dict[str, Interval] = {}
        for name in dict.fromkeys(name for of_list in fractions for name in of_list):
            sums = np.array([of_list[name] for of_list in fractions if name in of_list])
            if name.split("@")[0] in MICRO and sums[:, 1].any():
                found[f"{name}, micro"] = jackknife_of_users(_ratio(sums), len(sums), self.level)
        return found

    def gain(self, relevance: Numbers) -> Numbers:
        """Returns the gain of each relevance."""
        return relevance if self.linear else np.exp2(relevance) - 1

    def variety(
        self, data: Recommendations, rows: NDArray[np.int64], usual: dict[int, NDArray[np.bool_]]
    ) -> dict[str, float]:
        """Returns what depends on one list's items. usual: whether each row's item is one of the k most popular."""
        found = {}
        for k in self.k:
            top = rows[:k]
            if data.features is not None and len(top) > 1:
                found[f"intra-list similarity@{k}"] = intra_list_similarity(data.features[top])
            if data.popularity is not None:
                found[f"novelty@{k}"] = float(-np.log2(data.popularity[top]).mean())
                if data.propensity is None:
                    relevant = data.relevance[top] >= self.threshold
                    found[f"serendipity@{k}"] = float((relevant & ~usual[k][top]).sum()) / k
        return found

    def most_popular(self, data: Recommendations, k: int) -> NDArray[np.bool_]:
        """Returns whether the item of each row [N] is one of the k most popular of all rows, equal ones by name."""
        items, code = np.unique(data.item, return_inverse=True)
        mean = np.bincount(code, data.popularity) / np.bincount(code)
        return np.isin(code, np.lexsort([np.arange(len(items)), -mean.round(12)])[:k])

    def errors(self, data: Recommendations, lists: Lists) -> dict[str, Interval]:
        """Returns the errors of the predictions over all rows."""
        if data.prediction is None:
            return {}
        error = np.abs(data.prediction - data.relevance)
        rated = data.relevance > 0
        relative = np.where(rated, error / np.where(rated, data.relevance, 1), 0.0)
        terms = {
            "RMSE": (error**2, np.ones(len(error))),
            "MAE": (error, np.ones(len(error))),
            "MAPE": (relative, rated),
        }
        found = {}
        for name, (x, counted) in terms.items():
            sums = np.array([[x[rows].sum(), counted[rows].sum()] for rows in lists], float)
            if sums[:, 1].any():
                found[name] = jackknife_of_users(_ratio(sums, root=name == "RMSE"), len(lists), self.level)
        return found

    def of_all(self, data: Recommendations, lists: Lists) -> dict[str, Interval]:
        """Returns what compares users' lists, or items, with each other; nothing of one user."""
        items, code = np.unique(data.item, return_inverse=True)
        found: dict[str, Interval] = {}
        for k in self.k:
            taken = np.zeros((len(lists), max(len(items), self.catalogue or 0)))
            for user, rows in enumerate(lists):
                taken[user, code[rows[:k]]] = 1
            if len(lists) > 1:
                for name, statistic in (("Gini", _exposure_gini), ("personalisation", personalisation)):
                    found[f"{name}@{k}"] = jackknife_of_users(_of_users(statistic, taken), len(lists), self.level)
        return found

    def coverage(self, data: Recommendations, lists: Lists) -> dict[str, float]:
        """Returns coverage@k, a property of the lists that were given and no estimate."""
        total = max(len(np.unique(data.item)), self.catalogue or 0)
        return {
            f"coverage@{k}": len(set(np.concatenate([data.item[r[:k]] for r in lists]).tolist())) / total
            for k in self.k
        }

    def weighed(self, data: Recommendations, lists: Lists) -> dict[str, Interval]:
        """Returns DCG and NDCG of clicks, weighed by the inverse of their propensities."""
        found: dict[str, Interval] = {}
        relevance = data.relevance / data.propensity
        for k in self.k:
            sums = np.array([[dcg(data.score[r], relevance[r], k), ideal_dcg(relevance[r], k)] for r in lists])
            found[f"DCG@{k}, IPS"] = t_interval(sums[:, 0], self.level)
            if sums[:, 1].any():
                found[f"NDCG@{k}, IPS"] = jackknife_of_users(_ratio(sums), len(lists), self.level)
        return found

    def doubts(self, data: Recommendations, lists: Lists) -> list[str]:
        """Returns sentences on what makes the numbers other than they look."""
        found = []
        short = sum(len(rows) < max(self.k) for rows in lists)
        if short:
            found.append(
                f"{short} of {len(lists)} lists are shorter than {max(self.k)}; missing places count as misses"
            )
        if data.propensity is None:
            empty = sum(not (data.relevance[rows] >= self.threshold).any() for rows in lists)
            if empty:
                what = "count as 0" if self.keep_empty else "are left out of what depends on relevance"
                found.append(f"{empty} of {len(lists)} users have no relevant item, and {what}")
        return found


def _ratio(sums: Numbers, root: bool = False) -> Callable[[NDArray[np.int64]], float]:
    """Returns the function users -> sum of the first column over that of the second, or its root."""

    def ratio(users: NDArray[np.int64]) -> float:
        above, below = sums[users].sum(0)
        value = above / below if below else np.nan
        return float(np.sqrt(value)) if root else float(value)

    return ratio


def _of_users(statistic: Callable[[Numbers], float], taken: Numbers) -> Callable[[NDArray[np.int64]], float]:
    """Returns the function users -> the statistic of their lists, taken [U, I]."""
    return lambda users: statistic(taken[users])


def _exposure_gini(taken: Numbers) -> float:
    return gini(taken.sum(0))
