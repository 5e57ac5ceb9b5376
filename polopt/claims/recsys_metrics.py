"""These programs measure what the metrics of recommendations promise."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods import recsys_metrics as own
from polopt.methods.recsys_metrics import RecommendationMetrics, recsys_metrics
from polopt.metrics import Recommendations, recommended, t_interval, wilson
from polopt.metrics.recommended import RankedRelevance, dcg, discounts

USERS, ITEMS = 200, 10
SAMPLES = 100


def clicks(seed: int, sessions: int) -> tuple[Recommendations, Recommendations, Recommendations]:
    """Returns new lists with their true relevance, with rates of clicks and their propensities, and with the rates
    alone.

    Clicks come from lists in random order, whose place i is examined with 1 / log2(i + 1); what is examined is clicked
    with its relevance.
    """
    draw = np.random.default_rng(seed)
    relevance = draw.beta(0.5, 1.0, (USERS, ITEMS))
    score = relevance + draw.normal(0, 0.3, (USERS, ITEMS))
    place = np.argsort(draw.random((USERS, ITEMS)), 1)
    examined = discounts(ITEMS)[place]
    rate = draw.binomial(sessions, examined * relevance) / sessions
    user, item = np.repeat(np.arange(USERS), ITEMS), np.tile(np.arange(ITEMS), USERS)

    def lists(x: np.ndarray, propensity: np.ndarray) -> Recommendations:
        return Recommendations(user, item, score.ravel(), x.ravel(), propensity=propensity.ravel())

    one = np.ones_like(rate)
    return lists(relevance, one), lists(rate, examined), lists(rate, one)


@claim(
    "NDCG of clicks that are weighed by the inverse of their place's examination is the true one; that of the clicks "
    "alone is not.",
    kind="part",
    baseline="the same clicks without weights",
)
def position_bias() -> Finding:
    metric = recsys_metrics(k=(5,))
    weighed, naive = list[float](), list[float]()
    for seed in range(20):
        truth, clicked, alone = (metric(data).values["NDCG@5, IPS"] for data in clicks(seed, 2000))
        weighed.append(clicked - truth)
        naive.append(alone - truth)
    found, plain = t_interval(weighed), t_interval(naive)
    return Finding(
        measured={"weighed": found.estimate, "clicks alone": plain.estimate},
        criterion="errors over 20 samples: the weighed one within 0.005 by its 95 % interval, that of the clicks alone "
        "beyond 0.05",
        holds=max(abs(found.low), abs(found.high)) < 0.005 and min(abs(plain.low), abs(plain.high)) > 0.05,
        intervals={"weighed": (found.low, found.high), "clicks alone": (plain.low, plain.high)},
        note="200 users, lists of 10, 2000 sessions each; the logged lists are in random order. The weighed one is a "
        "little low, as in `few_sessions`. On logged lists that put relevant items last, clicks alone erred by 0.006: "
        "how far they err is a matter of the logged order.",
    )


@claim(
    "With few sessions the weighed NDCG is too low, as noise makes the best order look better; the weighed DCG is "
    "unbiased even then.",
    kind="limit",
    baseline="the weighed NDCG of 2000 sessions",
)
def few_sessions() -> Finding:
    metric = recsys_metrics(k=(5,))
    ratio, total = list[float](), list[float]()
    for seed in range(30):
        truth, clicked, _ = (metric(data).values for data in clicks(seed, 2))
        ratio.append(clicked["NDCG@5, IPS"] - truth["NDCG@5, IPS"])
        total.append(clicked["DCG@5, IPS"] / truth["DCG@5, IPS"] - 1)
    low, exact = t_interval(ratio), t_interval(total)
    return Finding(
        measured={"NDCG": low.estimate, "DCG, relative": exact.estimate},
        criterion="over 30 samples of 2 sessions: NDCG's error below -0.05, DCG's relative one within 0.04, by their "
        "95 % intervals",
        holds=low.high < -0.05 and max(abs(exact.low), abs(exact.high)) < 0.04,
        intervals={"NDCG": (low.low, low.high), "DCG, relative": (exact.low, exact.high)},
    )


@claim(
    "Equal scores count as the mean over all their orders, for each measure.",
    kind="identity",
    baseline="the list as it was written down",
)
def equal_scores() -> Finding:
    draw = np.random.default_rng(0)
    off, plain = 0.0, 0.0
    for _ in range(20):
        score, relevant = draw.integers(0, 3, 6).astype(float), draw.random(6) < 0.4
        relevant[draw.integers(6)] = True
        for k in (1, 3, 6):
            found = RankedRelevance(score, relevant).at_k(k) | {"DCG": dcg(score, relevant.astype(float), k)}
            orders = [p for p in itertools.permutations(range(6)) if (np.diff(score[list(p)]) <= 0).all()]
            each = [measures(relevant[list(p)], k) for p in orders]
            written = measures(relevant[np.argsort(-score, kind="stable")], k)
            for name, value in found.items():
                mean = float(np.mean([x[name] for x in each]))
                off, plain = max(off, abs(value - mean)), max(plain, abs(written[name] - mean))
    return Finding(
        measured={"largest difference": off, "of the list as written": plain},
        criterion="the first < 1e-12, the second > 0.1",
        holds=off < 1e-12 and plain > 0.1,
        note="Lists of 6 with scores 0, 1 and 2; every order of the equal ones, by the definitions.",
    )


@claim(
    "The micro average counts each relevant item alike, and its interval contains the share of all relevant items that "
    "are found; the mean over users is another number.",
    kind="part",
    baseline="the mean over users and its interval",
)
def each_item_alike() -> Finding:
    """Users have 1 relevant item, in the first 3 places with a probability of mean 2 / 3, or 6, one of which each of
    these places has with a probability of mean 1 / 3."""
    truth = (2 / 3 + 3 * 1 / 3) / (1 + 6)
    metric = recsys_metrics(k=(3,))
    covered = {"recall@3, micro": 0, "recall@3": 0}
    for seed in range(SAMPLES):
        found = metric(_few_and_many(np.random.default_rng(1000 + seed))).intervals
        for name in covered:
            covered[name] += found[name].low <= truth <= found[name].high
    micro, macro = (wilson(n, SAMPLES) for n in covered.values())
    return Finding(
        measured={"intervals that contain it": micro.estimate, "of the mean over users": macro.estimate},
        criterion=f"of {SAMPLES} samples, at 95 %: the share of intervals that contain it may be 0.95 by its own "
        "interval, and is at least 0.9; that of the mean over users is below 0.1",
        holds=micro.low <= 0.95 <= micro.high and micro.estimate >= 0.9 and macro.high < 0.1,
        intervals={
            "intervals that contain it": (micro.low, micro.high),
            "of the mean over users": (macro.low, macro.high),
        },
        note="120 users, 12 items each, the first 3 places; the probabilities are drawn for each user. With 40 users "
        "the mean's wide interval contained it in 0.29 of other samples.",
    )


def _few_and_many(draw: np.random.Generator) -> Recommendations:
    users, items, k = 120, 12, 3
    many = draw.random(users) < 0.5
    p = np.where(many, draw.beta(1, 2, users), draw.beta(2, 1, users))
    found = draw.binomial(np.where(many, k, 1), p)
    place = np.arange(items)
    rest = np.where(many, 6, 1) - found
    relevant = (place < found[:, None]) | ((place >= k) & (place < k + rest[:, None]))
    return Recommendations(
        np.repeat(np.arange(users), items),
        np.tile(place, users),
        np.tile(-place.astype(float), users),
        relevant.ravel(),
    )


def measures(relevant: np.ndarray, k: int) -> dict[str, float]:
    """Returns the measures of one order by their definitions."""
    hits, total = int(relevant[:k].sum()), int(relevant.sum())
    places = [i for i in range(min(k, len(relevant))) if relevant[i]]
    return {
        "precision": hits / k,
        "recall": hits / total,
        "F1": 2 * hits / (k + total),
        "hit rate": float(hits > 0),
        "MRR": 1 / (places[0] + 1) if places else 0.0,
        "MAP": sum(relevant[: i + 1].sum() / (i + 1) for i in places) / min(total, k),
        "DCG": sum(1 / np.log2(i + 2) for i in places),
    }


@mutation("The micro average is the mean over users.", kills=each_item_alike)
def mean_of_users(replace: Replace) -> None:
    def ratio(sums: np.ndarray, root: bool = False) -> Callable[[np.ndarray], float]:
        return lambda users: float((sums[users, 0] / np.maximum(sums[users, 1], 1)).mean())

    replace(own, "_ratio", ratio)


@mutation("Clicks are not weighed.", kills=position_bias)
def unweighed(replace: Replace) -> None:
    weighed = RecommendationMetrics.weighed

    def plain(self: RecommendationMetrics, data: Recommendations, lists: own.Lists) -> dict[str, own.Interval]:
        ones = np.ones(len(data))
        return weighed(self, Recommendations(data.user, data.item, data.score, data.relevance, None, ones), lists)

    replace(RecommendationMetrics, "weighed", plain)


@mutation("Places count from 0 in the discount's logarithm, and the first two alike.", kills=equal_scores)
def late_discount(replace: Replace) -> None:
    replace(recommended, "discounts", lambda n: 1 / np.log2(np.maximum(np.arange(n) + 1.0, 2)))
