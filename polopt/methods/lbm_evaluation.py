"""Policies compared by success rate while their trials run: posteriors, tests that allow every look, letters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import (
    Interval,
    Measured,
    Metric,
    MetricError,
    ResultTable,
    anytime_p,
    betting_evidence,
    compact_letters,
    holm,
    t_interval,
    welch_difference,
)
from polopt.metrics.policy_trials import TRIAL_ROWS, PolicyTrials
from polopt.metrics.success_rates import beta_posterior, exact_difference_p, rate_samples

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="A Careful Examination of Large Behavior Models for Multitask Dexterous Manipulation",
        authors="TRI LBM Team",
        year=2025,
        arxiv="2507.05331",
    ),
    changes="Compares success rates of policies while trials run: a test that holds at every look, corrected over all "
    "pairs, and letters that policies share unless they were separated.",
    room="metrics",
    tier="reading",
)
def lbm_evaluation(
    *,
    test: Literal["anytime", "fixed"] = "anytime",
    correction: Literal["holm", "bonferroni"] = "holm",
    outcome: Literal["success", "score"] = "success",
    level: float = 0.95,
) -> PolicyComparison:
    """A rate's posterior under a uniform prior, from s successes in n trials, and the evidence against equal rates of
    two policies, from the differences of paired trials d_i = x_i - y_i, in {-1, 0, 1}:

        p ~ Beta(1 + s, 1 + n - s),    E_n = 1/2 prod_i (1 + b_i d_i) + 1/2 prod_i (1 - c_i d_i)

    with the bets of `metrics.betting_evidence`, which depend on the past alone. The p value 1 / max E_n holds however
    often one looks and whenever one stops. Over all pairs of policies p values are corrected, and two policies share a
    letter if, and only if, their pair is not separated (Piepho 2004).

    Trials are paired by initial condition, or else in their order, within a task and never across tasks; rates over
    tasks are means of the tasks' own, so that no mixture of tasks favours a policy.

    test: "anytime", or "fixed": Barnard's exact test, for a number of trials that was decided beforehand.
    correction: of the p values over pairs.
    outcome: "score" compares partial success in [0, 1] instead, with "anytime".
    level: 1 less the probability that any equal pair is separated; of the intervals too, which hold at one look.

    Assumes that policies take turns in a random order: a drift of the conditions between them is no part of the test.
    It fails to separate, by design, where trials are few: rates of 0.5 and 0.75 take some 80 pairs.

    Deviations. The paper's sequential test, STEP, is optimised for a largest number of trials, and needs fewer of them;
    its code has a licence that we do not build on, so that betting takes its place. Over several tasks "fixed" is the
    conditional test stratified by task. The paper's text was not available to us beyond summaries.
    """
    return PolicyComparison(test=test, correction=correction, outcome=outcome, level=level)


class PolicyComparison(Metric):
    """Success rates, differences and letters; settings as those of the method `lbm-evaluation`.

    Values: `A, success rate` over tasks, and, where there are several, `A, TASK, success rate`, posterior means;
    `A - B, difference` and `A - B, p`, before correction; `A, TASK, score`. Tables: policies with their letters, over
    all tasks and on each. Rows: the differences of the pairs of trials, in their order.
    """

    test: Literal["anytime", "fixed"] = "anytime"
    correction: Literal["holm", "bonferroni"] = "holm"
    outcome: Literal["success", "score"] = "success"
    level: float = 0.95

    rows = TRIAL_ROWS

    def setup(self) -> None:
        where = "methods.lbm_evaluation.PolicyComparison"
        if self.test == "fixed" and self.outcome == "score":
            raise ValueError(f"{where}: test fixed counts successes; set test to anytime to compare scores")
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")

    def measure(self, data: PolicyTrials) -> Measured:
        """Measures all policies and pairs of them.

        Raises:
            MetricError: the score is compared, and a trial has none.
        """
        if self.outcome == "score" and np.isnan(data.score).any():
            raise MetricError("lbm-evaluation: a trial has no score; give the column score, or set outcome=success")
        order, tasks = self.ranked(data), data.tasks()
        intervals = self._rates(data, order)
        p: dict[str, float] = {}
        rows: dict[str, Numbers] = {}
        for one, other in itertools.combinations(order, 2):
            if data.tasks(one, other):
                intervals[f"{one} - {other}, difference"] = self._difference(data, one, other)
                p[f"{one} - {other}, p"] = self.p(data, one, other)
                rows[f"{one} - {other}"] = data.differences(one, other, self.outcome)
        tables = [self._policy_table(data, "all tasks" if len(tasks) > 1 else "", intervals)]
        if len(order) > 1:
            tables.append(self._pair_table(data, order, intervals, p))
        if len(tasks) > 1:
            each = [data[np.flatnonzero(data.task == task)] for task in tasks]
            tables += [
                self._policy_table(x, t, self._rates(x, self.ranked(x))) for x, t in zip(each, tasks, strict=True)
            ]
        values = {name: interval.estimate for name, interval in intervals.items()} | p
        return Measured(values, intervals, rows, tuple(_cautions(data, order)), tuple(tables))

    def ranked(self, data: PolicyTrials) -> list[str]:
        """Returns the policies by their mean outcome over tasks, the best first."""
        mean = {
            policy: np.mean(
                [getattr(data, self.outcome)[data.places(policy, task)].mean() for task in data.tasks(policy)]
            )
            for policy in data.policies()
        }
        return sorted(mean, key=lambda policy: (-mean[policy], policy))

    def p(self, data: PolicyTrials, one: str, other: str) -> float:
        """Returns the p value of equal rates of two policies on every task that both were tried on, 1 if there is
        none."""
        tasks = data.tasks(one, other)
        if self.test == "fixed":
            counts = np.stack([data.counts(policy, tasks) for policy in (one, other)], 1)
            return exact_difference_p(*counts) if tasks else 1.0
        return anytime_p(data.differences(one, other, self.outcome), betting_evidence)

    def separated(self, data: PolicyTrials, order: Sequence[str]) -> list[tuple[int, int]]:
        """Returns the pairs of places in `order` whose rates differ, corrected over all pairs."""
        pairs = list(itertools.combinations(range(len(order)), 2))
        p = [self.p(data, order[i], order[j]) for i, j in pairs]
        alpha = 1 - self.level
        rejected = holm(p, alpha) if self.correction == "holm" else [x <= alpha / len(pairs) for x in p]
        return [pair for pair, yes in zip(pairs, rejected, strict=True) if yes]

    def letters(self, data: PolicyTrials) -> dict[str, str]:
        """Returns the letters of each policy, the best first."""
        order = self.ranked(data)
        return dict(zip(order, compact_letters(len(order), self.separated(data, order)), strict=True))

    def _rates(self, data: PolicyTrials, order: Sequence[str]) -> dict[str, Interval]:
        """Returns rates over tasks and on each, and scores where they are known, by name."""
        found: dict[str, Interval] = {}
        several = len(data.tasks()) > 1
        for policy in order:
            tasks = data.tasks(policy)
            successes, trials = data.counts(policy, tasks)
            each = {
                task: beta_posterior(int(s), int(n), self.level)
                for task, s, n in zip(tasks, successes, trials, strict=True)
            }
            found[f"{policy}, success rate"] = (
                each[tasks[0]]
                if len(tasks) == 1
                else _quantiles(_posterior(data, policy, tasks), self.level, int(trials.sum()))
            )
            if several:
                found |= {f"{policy}, {task}, success rate": interval for task, interval in each.items()}
            for task in tasks:
                score = data.score[data.places(policy, task)]
                if not np.isnan(score).any():
                    found[f"{policy}, {task}, score"] = t_interval(score, self.level)
        return found

    def _difference(self, data: PolicyTrials, one: str, other: str) -> Interval:
        """Returns the difference of two policies' means over the tasks that both were tried on."""
        tasks = data.tasks(one, other)
        n = int(min(data.counts(policy, tasks)[1].sum() for policy in (one, other)))
        if self.outcome == "success":
            return _quantiles(_posterior(data, one, tasks) - _posterior(data, other, tasks), self.level, n)
        scores = [tuple(data.score[data.places(policy, task)] for policy in (one, other)) for task in tasks]
        each = [welch_difference(x, y, self.level) for x, y in scores]
        middle = float(np.mean([x.estimate for x in each]))
        half = float(np.sqrt(np.sum([(x.high - x.estimate) ** 2 for x in each]))) / len(each)
        return Interval(middle, middle - half, middle + half, self.level, n)

    def _policy_table(self, data: PolicyTrials, what: str, intervals: Mapping[str, Interval]) -> ResultTable:
        rows = []
        for policy, letters in self.letters(data).items():
            successes, trials = data.counts(policy, data.tasks(policy)).sum(1)
            rate = intervals[f"{policy}, success rate"]
            cells = [
                policy,
                letters,
                f"{successes}/{trials}",
                f"{rate.estimate:.1%}",
                f"{rate.low:.1%} to {rate.high:.1%}",
            ]
            scores = data.score[data.policy == policy]
            rows.append((*cells, "" if np.isnan(scores).any() else f"{scores.mean():.3f}"))
        columns = ("policy", "letters", "successes", "rate", f"{self.level:.0%} posterior", "mean score")
        kept = [i for i, name in enumerate(columns) if name != "mean score" or any(row[i] for row in rows)]
        return ResultTable(
            f"Success{f', {what}' if what else ''}",
            tuple(columns[i] for i in kept),
            tuple(tuple(row[i] for i in kept) for row in rows),
            "Policies that share a letter were not separated.",
        )

    def _pair_table(
        self, data: PolicyTrials, order: Sequence[str], intervals: Mapping[str, Interval], p: Mapping[str, float]
    ) -> ResultTable:
        apart = set(self.separated(data, order))
        rows = []
        for i, j in itertools.combinations(range(len(order)), 2):
            name = f"{order[i]} - {order[j]}"
            if (difference := intervals.get(f"{name}, difference")) is not None:
                rows.append(
                    (
                        name,
                        str(len(data.differences(order[i], order[j], self.outcome))),
                        f"{difference.estimate:+.1%}",
                        f"{difference.low:+.1%} to {difference.high:+.1%}",
                        f"{p[f'{name}, p']:.2g}",
                        "separated" if (i, j) in apart else "",
                    )
                )
        holds = {"anytime": "holds at every look", "fixed": "holds at a number of trials decided beforehand"}
        return ResultTable(
            "Pairs",
            ("pair", "pairs of trials", "difference", f"{self.level:.0%} interval", "p", ""),
            tuple(rows),
            f"p is of one pair and {holds[self.test]}; separated: after {self.correction.capitalize()}'s correction "
            f"for {len(rows)} pairs. Intervals hold at one look.",
        )


def _posterior(data: PolicyTrials, policy: str, tasks: Sequence[str]) -> Numbers:
    """Returns samples of a policy's mean rate over tasks, independent of the other policies' ones."""
    successes, trials = data.counts(policy, tasks)
    return rate_samples(successes, trials, data.policies().index(policy))


def _quantiles(samples: Numbers, level: float, n: int) -> Interval:
    low, high = np.quantile(samples, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(samples.mean()), float(low), float(high), level, n)


def _cautions(data: PolicyTrials, order: Sequence[str]) -> list[str]:
    found = []
    if len(order) == 1:
        found.append("there is one policy, and nothing to compare it with")
    for one, other in itertools.combinations(order, 2):
        tasks, name = data.tasks(one, other), f"{one} and {other}"
        if set(tasks) != set(data.tasks(one)) | set(data.tasks(other)):
            found.append(f"{name} were tried on different tasks; they are compared on {len(tasks)} that both have")
        if not tasks:
            continue
        pairs = len(data.differences(one, other))
        left = int(max(data.counts(policy, tasks)[1].sum() for policy in (one, other))) - pairs
        if left > 0.1 * pairs:
            found.append(f"of {name} {left} trials have no partner, and no part in the anytime test")
        for task in tasks:
            first, second = (data.order[data.places(policy, task)] for policy in (one, other))
            if min(len(first), len(second)) > 4 and (first.max() < second.min() or second.max() < first.min()):
                found.append(
                    f"on task {task} all trials of one of {name} came before those of the other: a drift would look "
                    "like a difference; let policies take turns, or give the column order"
                )
    return found
