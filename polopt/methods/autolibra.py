"""AutoLibra: metrics of an agent's behaviour that are induced from what people wrote of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Measured, Metric, MetricError
from polopt.metrics.induced import (
    FEEDBACK_ROWS,
    Aspect,
    AspectMatching,
    Clustering,
    Grounding,
    InducedMetric,
    SentenceGrounding,
    TraitJudge,
    WordClustering,
    WordJudge,
    WordMatching,
    WrittenFeedback,
)
from polopt.metrics.resampling import share_interval
from polopt.rewards import Item


@method(
    paper=Paper(
        title="AutoLibra: Agent Metric Induction from Open-Ended Human Feedback",
        authors="Zhu, Hao and Cuvin, Phil and Yu, Xinkai and Yan, Charlotte Ka Yee and Zhang, Jason and Yang, Diyi",
        year=2025,
        arxiv="2505.02820",
    ),
    changes="Metrics are induced from written feedback, and chosen by how much of it they cover and how few of their "
    "ratings nobody remarked on.",
    room="metrics",
    tier="reading",
)
def autolibra(
    *,
    grounding: Grounding | None = None,
    clustering: Clustering | None = None,
    judge: TraitJudge | None = None,
    matching: AspectMatching | None = None,
    rounds: int = 5,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> InducedMetrics:
    """Feedback on a trajectory is grounded to aspects, remarks of praise or blame; aspects are clustered to metrics; a
    judge rates each trajectory by each metric, 1, -1, or 0 where its behaviour does not occur. An aspect is matched to
    a metric of the same sign on its trajectory, or to none:

        coverage = (aspects that are matched) / (aspects)
        redundancy = (ratings of 1 and -1 that no aspect matches) / (ratings of 1 and -1)

    The aspects without a match are clustered again and their metrics added, while coverage rises, at most `rounds`
    times. Coverage and redundancy are of the half of the trajectories that the metrics were not induced from.

    Each step is a part. In the paper all are language models; the defaults here read words, need records in the words
    of the feedback, and are for small vocabularies and for tests. A part that calls a model takes their place. The
    authors' program counts ratings of 0 as redundant, which here they are not, and returns the metrics of the round
    before the last; here those of the best round are returned. Coverage measures metrics, judge and matching
    together: one that matches everything has coverage 1, and redundancy is no guard against it.

    `metric.induce(data)` returns the metrics, and `rubric_items` makes items of a `rewards.RubricReward` of them.

    grounding, clustering, judge, matching: None is the default that reads words. level, resamples, seed: of the
    intervals, bootstrap ones over trajectories, and of the halves.
    """
    return InducedMetrics(
        grounding=grounding or SentenceGrounding(),
        clustering=clustering or WordClustering(),
        judge=judge or WordJudge(),
        matching=matching or WordMatching(),
        rounds=rounds,
        level=level,
        resamples=resamples,
        seed=seed,
    )


class InducedMetrics(Metric):
    """Induces metrics and measures them on other trajectories; settings as those of the method `autolibra`.

    Values: `coverage`, `redundancy`, `metrics`, their number, and `mean NAME`, the mean rating of each over all
    trajectories. Rows: `coverage` of each held-out trajectory.
    """

    grounding: Grounding = SentenceGrounding()
    clustering: Clustering = WordClustering()
    judge: TraitJudge = WordJudge()
    matching: AspectMatching = WordMatching()
    rounds: int = 5
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    rows = FEEDBACK_ROWS

    def setup(self) -> None:
        if self.rounds < 1 or not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                "methods.autolibra.InducedMetrics: need rounds >= 1, level in (0, 1) and resamples >= 1, found "
                f"{self.rounds}, {self.level} and {self.resamples}"
            )

    def measure(self, data: WrittenFeedback) -> Measured:
        """Induces metrics from a half of the trajectories and measures them on the other one.

        Raises:
            MetricError: fewer than four trajectories, or feedback that no metric comes of.
        """
        data = data.in_order()
        names = np.unique(data.trajectory).tolist()
        if len(names) < 4:
            raise MetricError(f"autolibra: needs 4 trajectories or more to induce and to measure, found {len(names)}")
        shuffled = sorted(names, key=lambda name: hashlib.blake2b(f"{self.seed} {name}".encode()).digest())
        own = np.isin(data.trajectory, shuffled[::2])
        metrics = self.induce(data[np.flatnonzero(own)])
        if not metrics:
            raise MetricError(f"autolibra: {self.clustering!r:.80} makes no metric of {own.sum()} pieces of feedback")
        each = self.counts(data[np.flatnonzero(~own)], metrics)
        intervals = {}
        for name, part, whole in (("coverage", 0, 1), ("redundancy", 2, 3)):
            found = share_interval(each[:, part], each[:, whole], self.level, self.resamples, self.seed)
            if found is not None:
                intervals[name] = found
        values = {name: found.estimate for name, found in intervals.items()} | {"metrics": float(len(metrics))}
        records = dict(zip(data.trajectory.tolist(), data.record.tolist(), strict=True))
        for metric in metrics:
            values[f"mean {metric.name}"] = float(np.mean([self.judge(record, metric) for record in records.values()]))
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = {"coverage": each[:, 0] / each[:, 1]}
        cautions = ("one metric: coverage shows nothing of how fine it is",) if len(metrics) == 1 else ()
        return Measured(values, intervals, rows, cautions)

    def aspects(self, data: WrittenFeedback) -> list[Aspect]:
        """Returns the aspects of all feedback."""
        cells = zip(data.feedback.tolist(), data.record.tolist(), data.trajectory.tolist(), strict=True)
        return [aspect for feedback, record, name in cells for aspect in self.grounding(feedback, record, name)]

    def induce(self, data: WrittenFeedback) -> list[InducedMetric]:
        """Induces metrics from all feedback: those of the round with the highest coverage."""
        data = data.in_order()
        left, metrics, best = self.aspects(data), list[InducedMetric](), -1.0
        for _ in range(self.rounds):
            tried = metrics + [new for new in self.clustering(left) if new.name not in {old.name for old in metrics}]
            matched = self.matched(data, tried)
            coverage = float(np.mean([place is not None for _, place in matched])) if matched else 0.0
            if coverage <= best or len(tried) == len(metrics):
                break
            metrics, best, left = tried, coverage, [aspect for aspect, place in matched if place is None]
        return metrics

    def matched(self, data: WrittenFeedback, metrics: Sequence[InducedMetric]) -> list[tuple[Aspect, int | None]]:
        """Returns each aspect and the place of its metric: among those with a rating of its sign."""
        records = dict(zip(data.trajectory.tolist(), data.record.tolist(), strict=True))
        ratings = {name: [self.judge(record, metric) for metric in metrics] for name, record in records.items()}
        found: list[tuple[Aspect, int | None]] = []
        for aspect in self.aspects(data):
            sign = 1 if aspect.good else -1
            places = [i for i, rating in enumerate(ratings[aspect.trajectory]) if rating == sign]
            place = self.matching(aspect, [metrics[i] for i in places]) if places else None
            found.append((aspect, None if place is None else places[place]))
        return found

    def counts(self, data: WrittenFeedback, metrics: Sequence[InducedMetric]) -> NDArray[np.float64]:
        """Returns, for each trajectory, matched aspects, aspects, unmatched ratings and ratings, [P, 4]."""
        records = dict(zip(data.trajectory.tolist(), data.record.tolist(), strict=True))
        place = {name: i for i, name in enumerate(sorted(records))}
        found, used = np.zeros((len(place), 4)), {name: set[int]() for name in place}
        for aspect, metric in self.matched(data, metrics):
            row = place[aspect.trajectory]
            found[row, 0] += metric is not None
            found[row, 1] += 1
            if metric is not None:
                used[aspect.trajectory].add(metric)
        for name, record in records.items():
            rated = {i for i, metric in enumerate(metrics) if self.judge(record, metric) != 0}
            found[place[name], 2:] = len(rated - used[name]), len(rated)
        return found


def rubric_items(metrics: Sequence[InducedMetric], weight: float = 1.0) -> list[Item]:
    """Returns items of a rubric, one a metric, for a grader that reads texts: a mark of 0 is a rating of -1, one of 1/2
    of 0, and one of 1 of 1."""
    return [Item(name=metric.name, text=metric.definition, most=1.0, weight=weight) for metric in metrics]
