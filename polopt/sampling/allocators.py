"""Rollout allocators: split a batch's rollouts among the chosen tasks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.allocation import apportioned, knapsack, neyman
from polopt.sampling.parts import Buy, RolloutAllocator
from polopt.sampling.source_protocols import GradientNormSource, Source
from polopt.sampling.success import SuccessCounts
from polopt.situation import Situation


class KnapsackAllocator(RolloutAllocator):
    """Allocates most rollouts to the tasks for which one more has the largest value, by the rule of
    `allocation.knapsack`.

    success: the estimate of each task's success rate; by default the rate of the task's last visit.
    low: the fewest rollouts of a task.
    up: the most rollouts that a task gets by value.
    confidence: the confidence with which a task of 0 < p < 1 shall show both right and wrong answers before the rest of
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
            raise ValueError(f"sampling.KnapsackAllocator: need 1 <= low <= up, found {self.low} and {self.up}")
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise ValueError(
                f"sampling.KnapsackAllocator: confidence must be in (0, 1), or None, found {self.confidence}"
            )

    def check(self, group: int) -> None:
        if not self.low <= group <= self.up:
            raise ValueError(
                f"sampling.KnapsackAllocator: tasks are to have {self.low} to {self.up} rollouts, with a group of "
                f"{group} on "
                "average; set group between low and up"
            )

    def forward(self, source: Source, tasks: Tensor, group: int, buy: Buy) -> Experience:
        rates = self.success.rates(source.size).cpu()[tasks.cpu()]
        return buy(knapsack(rates, group, self.low, self.up, self.confidence).to(tasks.device))

    def observe(self, experience: Experience) -> None:
        self.success.observe(experience)


class GradientVarianceAllocator(RolloutAllocator):
    """Allocates rollouts by the variance of the accepted rollouts' gradients, which a first round outside the batch
    estimates.

    The first round of `first` rollouts of each task estimates p, the fraction that is accepted, and G, the mean over
    the accepted rollouts of || d/d theta sum_t log pi(y_t) ||. Then group * M rollouts are sampled, in proportion to
    G / sqrt(p + alpha / p^(beta - 1)), beyond `least` for every task; a task without an accepted rollout has share 0.
    If all shares are 0, the budget is split evenly. A batch samples (first + group) rollouts a task and keeps `group`
    of them.

    first: rollouts of each task in the first round.
    alpha, beta: lower the shares of tasks that are rarely accepted (`allocation.neyman`).
    block: G is over the parameters whose name contains it, "" for all, None for the policy's input embedding.
    accept: a rollout is accepted if its `outcome` is at least this.
    least: rollouts that every task gets.
    most: tasks with a larger p have share 0.
    enough: tasks with a smaller expected number of accepted rollouts have share 0.

    Source: arXiv:2505.02391.
    """

    first: int = 8
    alpha: float = 1e-3
    beta: float = 2.0
    block: str | None = None
    accept: float = 1.0
    least: int = 0
    most: float = 1.0
    enough: float = 0.0

    source_capabilities = frozenset({"gradient_norms"})

    def setup(self) -> None:
        if self.first < 1 or self.least < 0:
            raise ValueError(
                f"sampling.GradientVarianceAllocator: need first >= 1 and least >= 0, found {self.first} and "
                f"{self.least}"
            )
        if self.alpha < 0 or not 0 < self.most <= 1:
            raise ValueError(
                f"sampling.GradientVarianceAllocator: need alpha >= 0 and most in (0, 1], found {self.alpha} and "
                f"{self.most}"
            )

    def refusals(self, situation: Situation) -> Iterator[str]:
        try:
            situation.block(self.block)
        except ValueError as error:
            yield str(error)

    def check(self, group: int) -> None:
        if group < self.least:
            raise ValueError(
                f"sampling.GradientVarianceAllocator: every task is to have least = {self.least} rollouts, with a "
                "group of "
                f"{group}; raise group"
            )

    def forward(self, source: GradientNormSource, tasks: Tensor, group: int, buy: Buy) -> Experience:
        norm, rate = self.measured(source, buy(torch.full_like(tasks, self.first)), len(tasks))
        total = (group - self.least) * len(tasks)
        share = neyman(norm, rate, self.alpha, self.beta)
        share = torch.where(rate <= self.most, share, 0)
        share = torch.where(rate * share * total >= self.enough, share, 0)
        share = share / share.sum() if share.any() else torch.full_like(share, 1 / len(share))
        return buy((self.least + apportioned(share, total)).to(tasks.device))

    def measured(self, source: GradientNormSource, experience: Experience, tasks: int) -> tuple[Tensor, Tensor]:
        """Returns G and p of the first round, each [tasks], on the CPU."""
        accepted = experience.outcome >= self.accept
        norm, count, kept = torch.zeros(tasks, dtype=torch.float64), torch.zeros(tasks), experience[accepted]
        if len(kept):
            place = kept.group.cpu()
            norm.index_add_(0, place, source.gradient_norms(kept, self.block).double().cpu())
            count = place.bincount(minlength=tasks)
        return norm / count.clamp(min=1), count / self.first
