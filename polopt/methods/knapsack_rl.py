"""Knapsack RL: rollouts allocated to the tasks on which an additional one has the largest expected value."""

from __future__ import annotations

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling.allocation import knapsack
from polopt.sampling.parts import RolloutAllocator, RolloutFn
from polopt.sampling.source_protocols import Source
from polopt.sampling.success import SuccessCounts


@method(
    paper=Paper(
        title="Knapsack RL: Unlocking Exploration of LLMs via Optimizing Budget Allocation",
        authors="Li, Ziniu and Chen, Congliang and Yang, Tianyun and others",
        year=2025,
        arxiv="2509.25849",
    ),
    changes="GRPO with more rollouts for the tasks on which one more is worth most; the sum stays.",
    room="sampling",
    tier="proven",
)
def knapsack_rl(
    *,
    group: int = 8,
    low: int = 2,
    up: int = 128,
    confidence: float | None = 0.9,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """M tasks share group * M rollouts: N maximises sum_i V(N_i, p_i) over low <= N_i <= up, with

        V(N, p) = (1 - p^N - (1 - p)^N) p (1 - p)^2,

    the probability of right and wrong answers in one group times the first-order gain of p by a step on them; p is the
    success rate of the task's last visit. The paper solves it by dynamic programming; V is concave in N, so the greedy
    allocation of each next rollout to the task of largest gain is exact and faster. The rest is GRPO, each group its
    own size: a larger group weighs more in the mean over answers.

    Tasks of p = 0 and 1 have V = 0 and get `low`. As in a public program of the method for verl, which was
    read for this, the others get no more than shows both kinds of answers with `confidence`; what is left goes to the
    tasks of p = 0. A task without a visit gets `group`. That program counts a task that has no more than `low` as
    worth 0, here it is V(low, p). Its learning rate, clip and KL are not those of the method; ours are GRPO's.
    """
    budget = KnapsackAllocator(low=low, up=up, confidence=confidence)
    return grpo(group=group, clip=clip, kl=kl).but(**{"sampling.budget": budget})


class KnapsackAllocator(RolloutAllocator):
    """Allocates most rollouts to the tasks for which one more has the largest value, by the rule of
    `allocation.knapsack`.

    success: the estimate of each task's success rate; by default the rate of the task's last visit.
    low: the fewest rollouts of a task.
    up: the most rollouts that a task gets by value.
    confidence: the confidence with which a task of 0 < p < 1 shows both right and wrong answers before the rest of
        the budget goes to tasks that never succeeded; None leaves to these
        only rollouts beyond `up`.

    Groups differ in size, so that a mean over rows or tokens weighs tasks by their rollouts. Source: arXiv:2509.25849.
    """

    success: SuccessCounts = SuccessCounts(prior=(0.0, 0.0), keep_used=0.0)
    low: int = 2
    up: int = 128
    confidence: float | None = 0.9

    def setup(self) -> None:
        if not 1 <= self.low <= self.up:
            raise ValueError(
                f"methods.knapsack_rl.KnapsackAllocator: need 1 <= low <= up, found {self.low} and {self.up}"
            )
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise ValueError(
                f"methods.knapsack_rl.KnapsackAllocator: confidence must be in (0, 1), or None, found {self.confidence}"
            )

    def check(self, group: int) -> None:
        if not self.low <= group <= self.up:
            raise ValueError(
                f"methods.knapsack_rl.KnapsackAllocator: tasks are to have {self.low} to {self.up} rollouts, "
                "with a group of "
                f"{group} on "
                "average; set group between low and up"
            )

    def forward(self, source: Source, tasks: Tensor, group: int, rollout: RolloutFn) -> Experience:
        rates = self.success.rates(source.size).cpu()[tasks.cpu()]
        return rollout(knapsack(rates, group, self.low, self.up, self.confidence).to(tasks.device))

    def observe(self, experience: Experience) -> None:
        self.success.observe(experience)
