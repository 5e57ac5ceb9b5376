"""How many rollouts each of the chosen tasks gets."""

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
    """Most rollouts to those tasks on which one more is worth most: `allocation.knapsack` has the rule.

    success: what is known of a task's success; as a default the rate of its last visit. low, up: the least and the
    most rollouts that a task gets by value. confidence: with how much the value's tasks shall see both kinds of
    answers before what they leave goes to tasks that never succeeded; None for never.

    Groups differ in size, so that a mean over rows or tokens weighs tasks by their rollouts.
    Source: arXiv:2509.25849.
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
    """Rollouts where the gradient of the accepted ones varies most, found out by a first round that nobody learns from.

    First `first` rollouts of each task give p, the share that is accepted (`outcome` of at least `accept`), and G, the
    mean over the accepted of || d/d theta sum_t log pi(y_t) || over the parameters whose name contains `block`, "" for
    all, None for the policy's input embedding. Then
    group * M rollouts are bought, in proportion to G / sqrt(p + alpha / p^(beta - 1)); tasks of which nothing was
    accepted get none, but for `least`, which everybody has. most: the highest p that a task may have and be bought.
    enough: the least number of accepted rollouts that is to be expected of a task, or it is left out. Where nobody is
    bought by that, all are, evenly. A batch samples (first + group) rollouts a task and gives `group` of them.

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
        """[tasks] G and p of the first round, on the CPU."""
        accepted = experience.outcome >= self.accept
        norm, count, kept = torch.zeros(tasks, dtype=torch.float64), torch.zeros(tasks), experience[accepted]
        if len(kept):
            place = kept.group.cpu()
            norm.index_add_(0, place, source.gradient_norms(kept, self.block).double().cpu())
            count = place.bincount(minlength=tasks)
        return norm / count.clamp(min=1), count / self.first
