"""Lifelong learning: what a learner keeps, transfers and recovers while it trains on one task after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, t_interval
from polopt.metrics.lifelong import LIFELONG_ROWS, LifelongLog, Lifetime, Numbers, saturation

NAMES = {
    "PM": "performance maintenance",
    "FT": "forward transfer",
    "BT": "backward transfer",
    "RP": "performance relative to the expert",
    "SE": "sample efficiency",
    "PR": "performance recovery",
    "MTP": "mean training performance",
    "MEP": "mean evaluation performance",
}


@method(
    paper=Paper(
        title="A Domain-Agnostic Approach for Characterization of Lifelong Learning Systems",
        authors="Baker, Megan M. and New, Alexander and Aguilar-Simon, Mario and others",
        year=2023,
        arxiv="2301.07799",
    ),
    changes="Measures a learner of several tasks in turn: what it forgets, what one task gives another, how fast it "
    "recovers, and how far it is from learners of each task alone.",
    room="metrics",
    tier="proven",
)
def l2_lifelong(
    *,
    transfer: Literal["contrast", "ratio"] = "contrast",
    normalise: bool = True,
    low: float | None = None,
    high: float | None = None,
    level: float = 0.95,
) -> LifelongMetrics:
    """T is a block's terminal performance: the mean of an evaluation, of the last 10 % of training. For task j

        PM_j = mean_e (T_e - T_ref),    FT_ij, BT_ij = (T_2 - T_1) / (T_1 + T_2) or T_2 / T_1

    with e its evaluations after the reference, the first evaluation after its most recent training; T_1 and T_2 its
    evaluations before and after training on i, forward before j was trained first, backward after that. Beside them

        RP_j = sum_t y_t / sum_t y*_t,    SE_j = (S / S*) (t* / t),    PR_j = -slope(recovery times)

    with y the learner's training curve of j and y* an expert's, as far as both go; S the maximum of the moving average
    and t its place; the recovery time of a block of training is the number of experiences before T of the previous one
    is reached, and the slope is Theil and Sen's. MTP and MEP are means of T. Each is a mean over tasks, or pairs of
    tasks; RP and SE over the runs of an expert.

    transfer: contrast is antisymmetric, and 0 where nothing changes; ratio is 1 there.
    normalise: maps each task's performance to [1, 101], since quotients near 0 mean nothing. low, high: the range of
    performance that is mapped, of all tasks; by default each task's own in all lifetimes and experts of the data, so
    that other data change the numbers.
    level: of the intervals, Student's over lifetimes, where there are several.

    The definitions are those of the paper's published code, l2metrics. SE is 0 where S is below a fifth of S* or the
    learner's curve falls, a rule of later versions that was not confirmed; a saturation at the first experience leaves
    the task out, as there. Two trained tasks between two evaluations both get the transfer; training without
    evaluations on either side gives none. Performance is assumed to be comparable across blocks of a task: a learner
    whose evaluations are noisy shows forgetting and recovery by chance, which only several lifetimes tell apart.
    """
    return LifelongMetrics(transfer=transfer, normalise=normalise, low=low, high=high, level=level)


class LifelongMetrics(Metric):
    """Metrics of lifelong learning; settings as those of the method `l2-lifelong`.

    Values are named PM, FT, BT, RP, SE, PR, MTP and MEP, and `PM, TASK` and so on, `FT, SOURCE to TARGET`, each a mean
    over lifetimes; rows: those of the learner by lifetime.
    """

    transfer: Literal["contrast", "ratio"] = "contrast"
    normalise: bool = True
    low: float | None = None
    high: float | None = None
    level: float = 0.95

    rows = LIFELONG_ROWS

    def setup(self) -> None:
        where = "methods.l2_lifelong.LifelongMetrics"
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"{where}: low must be below high, found {self.low:g} and {self.high:g}")
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")

    def measure(self, data: LifelongLog) -> Measured:
        """Measures every lifetime.

        Raises:
            MetricError: there are too few blocks for any of the metrics.
        """
        log = data.normalised(self.low, self.high) if self.normalise else data
        each: dict[str, list[float]] = {}
        lifetimes = log.lifetimes()
        for lifetime in lifetimes.values():
            for name, value in self._lifetime(lifetime, log).items():
                each.setdefault(name, []).append(value)
        if not each:
            raise MetricError("l2-lifelong: the log has no block of training and no evaluation that can be compared")
        arrays = {name: np.array(values) for name, values in each.items()}
        intervals: dict[str, Interval] = {
            name: t_interval(x, self.level) for name, x in arrays.items() if len(x) > 1 and np.isfinite(x).all()
        }
        return Measured(
            {name: float(x.mean()) for name, x in arrays.items()},
            intervals,
            {name: x for name, x in arrays.items() if name in NAMES and len(x) == len(lifetimes)},
            tuple(self._cautions(each, log, lifetimes)),
        )

    def _lifetime(self, lifetime: Lifetime, log: LifelongLog) -> dict[str, float]:
        """Returns the numbers of one lifetime by name."""
        found: dict[str, float] = {}
        of_task: dict[str, list[float]] = {}
        for metric, where, value in self._parts(lifetime, log):
            of_task.setdefault(metric, []).append(value)
            found[f"{metric}, {where}"] = value
        return {metric: float(np.mean(of_task[metric])) for metric in NAMES if metric in of_task} | found

    def _parts(self, lifetime: Lifetime, log: LifelongLog) -> Iterator[tuple[str, str, float]]:
        """Yields the metrics of each task or pair of tasks: the metric, the task or pair, the value."""
        for task in lifetime.tasks:
            if len(kept := lifetime.maintenance(task)):
                yield "PM", task, float(kept.mean())
            if len(times := lifetime.recovery_times(task)) > 1:
                yield "PR", task, -_theil_sen(times)
            for name, kind in (("MTP", "train"), ("MEP", "eval")):
                if blocks := lifetime.of(kind, task):
                    yield name, task, float(np.mean([block.terminal for block in blocks]))
            if len(curve := lifetime.training(task)) and (experts := log.experts(task)):
                yield "RP", task, self.relative_performance(curve, experts)
                if (efficiency := self.sample_efficiency(curve, experts)) is not None:
                    yield "SE", task, efficiency
            for source in lifetime.tasks:
                if source != task:
                    for name, pairs in zip(("FT", "BT"), lifetime.transfers(source, task).values(), strict=True):
                        if pairs:
                            yield name, f"{source} to {task}", float(np.mean([self.gain(*pair) for pair in pairs]))

    def gain(self, before: float, after: float) -> float:
        """Returns the transfer from two evaluations; not a number where they add up to 0, or the first one is 0."""
        if self.transfer == "ratio":
            return after / before if before else np.nan
        return (after - before) / (before + after) if before + after else np.nan

    def relative_performance(self, curve: Numbers, experts: Sequence[Numbers]) -> float:
        """Returns RP of a training curve, the mean over experts."""
        sizes = [min(len(curve), len(expert)) for expert in experts]
        return float(np.mean([curve[:n].sum() / expert[:n].sum() for n, expert in zip(sizes, experts, strict=True)]))

    def sample_efficiency(self, curve: Numbers, experts: Sequence[Numbers]) -> float | None:
        """Returns SE of a training curve, the mean over experts; None where a curve is highest at its beginning."""
        top, place = saturation(curve)
        falls = len(curve) > 1 and np.polyfit(np.arange(len(curve)), curve, 1)[0] < 0
        found = []
        for best, its_place in map(saturation, experts):
            if place and its_place:
                found.append(0.0 if falls or top < 0.2 * best else top / best * its_place / place)
        return float(np.mean(found)) if found else None

    def _cautions(
        self, each: dict[str, list[float]], log: LifelongLog, lifetimes: dict[str, Lifetime]
    ) -> Iterator[str]:
        if missing := [name for name in NAMES if name not in each]:
            yield f"the log has no blocks for {', '.join(f'{NAMES[name]} ({name})' for name in missing)}"
        if some := [name for name in NAMES if 0 < len(each.get(name, ())) < len(lifetimes)]:
            yield f"{', '.join(some)}: not in every lifetime"
        if len(lifetimes) == 1:
            yield "one lifetime has no interval: forgetting and transfer may be chance; log others with a run's name"
        tasks = {block.task for lifetime in lifetimes.values() for block in lifetime.blocks if block.kind == "train"}
        if without := sorted(task for task in tasks if not log.experts(task)):
            yield f"RP and SE leave out {', '.join(without)}, which no expert has learned"


def _theil_sen(values: Numbers) -> float:
    """Returns the median of the slopes of all pairs of values at 0, 1, 2, ..."""
    first, second = np.triu_indices(len(values), 1)
    return float(np.median((values[second] - values[first]) / (second - first)))
