"""These programs measure what is claimed of metrics that are induced from feedback, on behaviours that are known."""

import itertools

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.remarks import BEHAVIOURS, feedback, record
from polopt.methods import autolibra as paper
from polopt.metrics import t_interval
from polopt.metrics.induced import InducedMetric, WordJudge

SEEDS = range(5)
TRAJECTORIES = 60


@claim(
    "From feedback on 60 trajectories the loop recovers the hidden behaviours, covers nine tenths of held-out remarks, "
    "and rates little that nobody could remark on.",
    kind="part",
    baseline="metrics of the same words, put together at random",
)
def recovers() -> Finding:
    found, coverage, redundancy, random = [], [], [], []
    for seed in SEEDS:
        data = feedback(TRAJECTORIES, seed)
        metric = paper.autolibra(resamples=50)
        measured = metric(data).values
        induced = metric.induce(data)
        found.append(len({m.name for m in induced} & set(BEHAVIOURS)))
        coverage.append(measured["coverage"])
        redundancy.append(measured["redundancy"])
        draw = np.random.default_rng(seed)
        texts = [text for m in induced for text in (*m.good, *m.bad)]
        order = draw.permutation(len(texts))
        mixed = [
            InducedMetric(m.name, (texts[order[2 * i]],), (texts[order[2 * i + 1]],)) for i, m in enumerate(induced)
        ]
        each = metric.counts(data, mixed).sum(0)
        random.append(float(each[0] / each[1]))
    return Finding(
        measured={
            "behaviours": float(min(found)),
            "coverage": min(coverage),
            "redundancy": max(redundancy),
            "coverage of random metrics": float(np.mean(random)),
        },
        criterion="at least 7 of 8 behaviours, coverage of at least 0.9 on the held-out half, on each of 5 seeds; at most "
        "0.5 for metrics whose examples are mixed",
        holds=min(found) >= 7 and min(coverage) >= 0.9 and float(np.mean(random)) <= 0.5,
        note="Feedback is written from templates in the words of the records. Redundancy is reported, not judged: of "
        "four behaviours that occur one to three are remarked on, so that half of all right ratings match nothing.",
    )


def steps_to(reward: np.ndarray, good: np.ndarray, step_size: float, most: int = 3000) -> int:
    """Returns the steps of exact policy gradient until 80 % success. The policy does each behaviour well or badly,
    independently; reward: [256] of every trajectory, good: [256, 8]."""
    theta = np.zeros(good.shape[1])
    for step in range(most):
        p = 1 / (1 + np.exp(-theta))
        chance = np.prod(np.where(good, p, 1 - p), 1)
        if chance[good.all(1)].sum() >= 0.8:
            return step
        theta += step_size * (chance * reward) @ (good - p)
    return most


@claim(
    "Ratings by the induced metrics, added to the reward for success, bring it to 80 % in two thirds of the steps or "
    "fewer.",
    kind="headline",
    baseline="the reward for success alone, and ratings by metrics whose signs are drawn at random, each at its best step "
    "size",
)
def speeds_learning() -> Finding:
    good = np.array(list(itertools.product([0, 1], repeat=len(BEHAVIOURS))), bool)
    success = good.all(1).astype(float)
    records = [record(np.where(row, 1, -1).tolist()) for row in good]
    grid = (0.3, 1.0, 3.0, 10.0, 30.0)
    alone = min(steps_to(success, good, size) for size in grid)
    ratios, scrambled = [], []
    for seed in SEEDS:
        metric = paper.autolibra(resamples=50)
        induced = metric.induce(feedback(TRAJECTORIES, 50 + seed))
        ratings = np.array([[metric.judge(text, m) for m in induced] for text in records], float)
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], len(induced))
        for each, table in ((ratios, ratings), (scrambled, ratings * signs)):
            each.append(alone / min(steps_to(success + 0.1 * table.mean(1), good, size) for size in grid))
    times = t_interval(ratios) if np.ptp(ratios) > 0 else None
    return Finding(
        measured={
            "times as fast": float(np.mean(ratios)),
            "least": float(min(ratios)),
            "with random signs": float(np.mean(scrambled)),
            "steps alone": float(alone),
        },
        criterion="at least 1.5 times as fast with the metrics of each of 5 sets of feedback; below 1.5 in the mean with "
        "random signs",
        holds=min(ratios) >= 1.5 and float(np.mean(scrambled)) < 1.5,
        intervals={} if times is None else {"times as fast": (times.low, times.high)},
        note="Exact gradients over all 256 trajectories of eight behaviours, each well or badly done; success is all of "
        "them well done. The ratings are dense and the success is not: the traits are the success's own parts here.",
    )


@claim("One metric of everything covers all feedback.", kind="limit", baseline="redundancy, which is not higher for it")
def catch_all() -> Finding:
    class Everything(paper.WordMatching):
        def forward(self, aspect: paper.Aspect, metrics: list[InducedMetric]) -> int | None:  # type: ignore[override]
            return 0

    data = feedback(TRAJECTORIES, 90)
    metric = paper.autolibra(resamples=50, matching=Everything())
    one = metric.counts(data, metric.induce(data)).sum(0)
    coverage = float(one[0] / one[1])
    return Finding(
        measured={"coverage": coverage},
        criterion="coverage of at least 0.95 by a matching that reads nothing",
        holds=coverage >= 0.95,
        note="Coverage and redundancy do not see how fine metrics are.",
    )


@mutation("Aspects match metrics of either sign.", kills=recovers)
def any_sign(replace: Replace) -> None:
    replace(WordJudge, "forward", lambda self, record, metric: -1)


@mutation("The judge turns good and bad round.", kills=speeds_learning)
def turned_round(replace: Replace) -> None:
    rate = WordJudge.forward
    replace(WordJudge, "forward", lambda self, record, metric: -rate(self, record, metric))
