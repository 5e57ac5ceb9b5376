"""IntellAgent: tests of an agent's rules by walks over a graph, and where it breaks them."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, rank_correlation, wilson
from polopt.metrics.policy_tests import RESULT_ROWS, PolicyTestResults
from polopt.metrics.resampling import share_interval, unit_means


@method(
    paper=Paper(
        title="IntellAgent: A Multi-Agent Framework for Evaluating Conversational AI Systems",
        authors="Levi, Elad and Kadar, Ilan",
        year=2025,
        arxiv="2501.11067",
    ),
    changes="Tests come from walks over a graph of the rules that come up together, of a set difficulty; success "
    "is reported by difficulty, by rule and by pair of rules.",
    room="metrics",
    tier="reading",
)
def intellagent(*, pairs: int = 10, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> PolicyTestReport:
    """Rules have challenge scores c, and pairs of them weights w, how likely both come up in one conversation. A test
    of difficulty K or more is a walk over rules i_1, i_2, ...,

        P(i_1) = 1 / P,    P(i_{t+1} = j | i_1, ..., i_t) ~ w(i_t, j) 1[j not among i_1, ..., i_t]
        difficulty = c(i_1) + ... + c(i_t) >= K

    `worlds.PolicyGraph` samples them, `worlds.policy_test_rows` makes a data set of them, and
    `worlds.policy_violations` judges a conversation by checks that are rules. This metric reads the results: a run
    succeeds if no rule that it tests is broken; a rule's rate is of the runs that test it, and a pair's of those that
    test both, where either is broken.

    The authors' program lets a walk return to a rule, and fails where nothing has weight; here a rule comes once, and a
    walk without neighbours ends. It judges by a model, which this leaves to others. A walk overshoots K by the last
    score: difficulty is the sum, not K. Extraction of rules and scores from a prompt, and the simulated user, are
    models' work and not part of this.

    pairs: of these only those with as many runs are reported. level: of the intervals, Wilson's of single runs, and
    bootstrap ones over events with several. They are not corrected for the number of pairs. resamples, seed: of those.
    """
    return PolicyTestReport(pairs=pairs, level=level, resamples=resamples, seed=seed)


class PolicyTestReport(Metric):
    """Success by difficulty, rule and pair; settings as those of the method `intellagent`.

    Values: `success`, `success at D` for each difficulty, `violations of R` for each rule, `violations of R and S` for
    each pair, and `rank correlation of difficulty` and success over difficulties. Rows: `success` of each run.
    """

    pairs: int = 10
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    rows = RESULT_ROWS

    def setup(self) -> None:
        if self.pairs < 1 or not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                "methods.intellagent.PolicyTestReport: need pairs >= 1, level in (0, 1) and resamples >= 1, found "
                f"{self.pairs}, {self.level} and {self.resamples}"
            )

    def measure(self, data: PolicyTestResults) -> Measured:
        tested, broken = data.tables()
        names = data.names()
        failed: NDArray[np.bool_] = np.asarray(broken.any(1))
        every = np.ones(len(data), bool)
        intervals = {"success": self.rate(data, ~failed, every)}
        levels = np.unique(data.difficulty)
        for difficulty in levels:
            intervals[f"success at {difficulty:g}"] = self.rate(
                data, ~failed, np.asarray(data.difficulty == difficulty)
            )
        for i, name in enumerate(names):
            intervals[f"violations of {name}"] = self.rate(data, broken[:, i], tested[:, i])
        for i, j in itertools.combinations(range(len(names)), 2):
            both = tested[:, i] & tested[:, j]
            if both.sum() >= self.pairs:
                found = self.rate(data, broken[:, i] | broken[:, j], both)
                intervals[f"violations of {names[i]} and {names[j]}"] = found
        values = {name: found.estimate for name, found in intervals.items()}
        if len(levels) > 2:
            values["rank correlation of difficulty"] = rank_correlation(
                levels, [values[f"success at {x:g}"] for x in levels]
            )
        rare = [name for i, name in enumerate(names) if tested[:, i].sum() < self.pairs]
        cautions = [f"{', '.join(rare)[:200]}: tested in fewer than {self.pairs} runs"] if rare else []
        return Measured(values, intervals, {"success": (~failed).astype(float)}, tuple(cautions))

    def rate(self, data: PolicyTestResults, x: NDArray[np.bool_], among: NDArray[np.bool_]) -> Interval:
        """Returns the share of some runs, one at least, that have x."""
        events = data.event[among]
        if len(np.unique(events)) == len(events):
            return wilson(float(x[among].sum()), len(events), self.level)
        _, each = unit_means(data.event, np.stack([x & among, among], 1))
        found = share_interval(each[:, 0], each[:, 1], self.level, self.resamples, self.seed)
        assert found is not None
        return found
