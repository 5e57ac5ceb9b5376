"""VitaBench: how reliably a policy does a task, from several trials of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polopt.method import Paper, method
from polopt.metrics import Measured, Metric, MetricError, pass_all_k, pass_at_k, rate_interval
from polopt.metrics.policy_trials import TRIAL_ROWS, PolicyTrials


@method(
    paper=Paper(
        title="VitaBench: Benchmarking LLM Agents with Versatile Interactive Tasks in Real-world Applications",
        authors="He, Wei and Sun, Yueqing and Hao, Hongyan and others",
        year=2025,
        arxiv="2509.26490",
    ),
    changes="Measures agents by several trials of each task: the mean, the chance that one of k succeeds, and that all "
    "of k do.",
    room="metrics",
    tier="faithful",
)
def vitabench(*, k: Sequence[int] = (), level: float = 0.95) -> Reliability:
    """Of task t with n_t trials, c_t of them successes, means over tasks of

        p_t = c_t / n_t,   u_t = 1 - C(n_t - c_t, k) / C(n_t, k),   v_t = C(c_t, k) / C(n_t, k),

    named avg, pass@k and pass^k, and, where trials have one, of the share of their rubric that is met. pass@k and
    pass^k are without bias, and pass^k <= avg <= pass@k; how far they lie apart tells how much of an agent's success is
    luck. Of each policy, with intervals over tasks.

    k: the numbers of trials; none given means 1, 2, 4, 8, ... up to the fewest trials of a task.
    level: of the intervals.

    A trial that a model judged by a rubric is `rewards.judges.SlidingRubric`'s: it reads a conversation in windows and
    keeps what is met, as the paper's evaluator does. The authors' program takes a reward of exactly 1 for a success,
    and limits k to the fewest trials of a task, as here.
    """
    return Reliability(k=tuple(k), level=level)


class Reliability(Metric):
    """The metric of `vitabench`; settings as those of the method.

    Values: `POLICY, avg`, `POLICY, pass@k`, `POLICY, pass^k`, `POLICY, rubric`. Rows: each policy's avg by task.
    """

    k: tuple[int, ...] = ()
    level: float = 0.95

    rows = TRIAL_ROWS

    def setup(self) -> None:
        where = "methods.vitabench.Reliability"
        if self.k and min(self.k) < 1:
            raise ValueError(f"{where}: k must be numbers of trials from 1 on, found {self.k}")
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")

    def measure(self, data: PolicyTrials) -> Measured:
        """Measures all policies.

        Raises:
            MetricError: a task with fewer trials than the largest k.
        """
        found = {policy: self.rates(data, policy) for policy in data.policies()}
        intervals = {
            f"{policy}, {name}": rate_interval(np.clip(rate, 0, 1), self.level)
            for policy, rates in found.items()
            for name, rate in rates.items()
        }
        values = {f"{policy}, {name}": float(x.mean()) for policy, rates in found.items() for name, x in rates.items()}
        rows = {policy: rates["avg"] for policy, rates in found.items()}
        cautions = []
        if len({tuple(data.tasks(policy)) for policy in found}) > 1:
            cautions.append("policies were tried on different tasks, so that their means are not comparable")
        return Measured(values, intervals, rows, tuple(cautions))

    def rates(self, data: PolicyTrials, policy: str) -> dict[str, np.ndarray]:
        """Returns the measures of a policy by task, [tasks] each."""
        tasks = data.tasks(policy)
        right, n = data.counts(policy, tasks)
        fewest = int(n.min())
        k = self.k or tuple(2**i for i in range(fewest.bit_length()))
        if max(k) > fewest:
            raise MetricError(
                f"vitabench: k = {max(k)} needs as many trials of every task, and {policy!r:.60} has {fewest} of "
                f"{tasks[int(n.argmin())]!r:.60}; set k, or run more trials"
            )
        found = {"avg": right / n}
        found |= {f"pass@{j}": pass_at_k(n, right, j) for j in k} | {f"pass^{j}": pass_all_k(n, right, j) for j in k}
        own = data.policy == policy
        if not np.isnan(data.score[own]).any():
            found["rubric"] = np.array([data.score[own & (data.task == task)].mean() for task in tasks])
        return found
