"""GVM-RAFT: rollouts allocated in proportion to the variance of the gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.method import Paper, method
from polopt.methods.raft import raft
from polopt.objectives import PromptMean
from polopt.sampling.allocation import apportioned, neyman
from polopt.sampling.parts import RolloutAllocator, RolloutFn
from polopt.sampling.source_protocols import GradientNormSource
from polopt.situation import Situation


@method(
    paper=Paper(
        title="Optimizing Chain-of-Thought Reasoners via Gradient Variance Minimization in Rejection Sampling and RL",
        authors="Yao, Jiarui and Hao, Yifan and others",
        year=2025,
        arxiv="2505.02391",
    ),
    changes="RAFT on all right answers, with rollouts in proportion to G / sqrt(p) of each task, measured beforehand.",
    room="sampling",
    tier="faithful",
)
def gvm(
    *,
    group: int = 8,
    first: int = 8,
    alpha: float = 1e-3,
    beta: float = 2.0,
    block: str | None = None,
    least: int = 0,
) -> Algorithm:
    """Rollouts and loss from two statistics of `first` rollouts of each of M tasks: the share p_i that is right, and
    G_i, the mean over the right ones of || grad sum_t logp_t ||, over the parameters whose name contains `block`, as a
    default the policy's input embedding, which the authors' program names embed_tokens. Then group * M rollouts are
    allocated by

        n_i ~ G_i / sqrt(p_i + alpha / p_i^(beta - 1)),    L = -(1 / M) sum_i mean_(right of i) sum_t logp_t.

    The mean over a task's right answers has a variance of about G_i^2 / (n_i p_i); alpha = 0 minimises their sum. The
    first rollouts cost compute and are not learned from. A task without a right one among them gets `least` rollouts, 0
    in
    the paper: it is not tried again in this batch.

    Defaults are those of the authors' program, which measures before each of a few long rounds of training, hands
    every task n_i times to an ordinary trainer, so that a task with more rollouts weighs more, and lets the second
    budget be no larger than the first. Here a round is one batch, and the loss is the sum of means whose variance
    the paper derives. objective.aggregate=TokenMean() is that of the code. The budget works with other learners too:
    `grpo().but(**{"sampling.budget": GradientVarianceAllocator()})` learns from wrong answers as well.
    """
    budget = GradientVarianceAllocator(first=first, alpha=alpha, beta=beta, block=block, least=least)
    changes = {"sampling.budget": budget, "objective.aggregate": PromptMean(decisions="sum")}
    return raft(group=group, keep=None, threshold=1.0).but(changes)


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
    right: the rollouts that are accepted.
    least: rollouts that every task gets.
    most: tasks with a larger p have share 0.
    enough: tasks with a smaller expected number of accepted rollouts have share 0.

    Source: arXiv:2505.02391.
    """

    first: int = 8
    alpha: float = 1e-3
    beta: float = 2.0
    block: str | None = None
    right: RowMask = IsCorrect()
    least: int = 0
    most: float = 1.0
    enough: float = 0.0

    source_capabilities = frozenset({"gradient_norms"})

    def setup(self) -> None:
        if self.first < 1 or self.least < 0:
            raise ValueError(
                f"methods.gvm.GradientVarianceAllocator: need first >= 1 and least >= 0, found {self.first} and "
                f"{self.least}"
            )
        if self.alpha < 0 or not 0 < self.most <= 1:
            raise ValueError(
                f"methods.gvm.GradientVarianceAllocator: need alpha >= 0 and most in (0, 1], found {self.alpha} and "
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
                f"methods.gvm.GradientVarianceAllocator: every task is to have least = {self.least} rollouts, with a "
                "group of "
                f"{group}; raise group"
            )

    def forward(self, source: GradientNormSource, tasks: Tensor, group: int, rollout: RolloutFn) -> Experience:
        norm, rate = self.measured(source, rollout(torch.full_like(tasks, self.first)), len(tasks))
        total = (group - self.least) * len(tasks)
        share = neyman(norm, rate, self.alpha, self.beta)
        share = torch.where(rate <= self.most, share, 0)
        share = torch.where(rate * share * total >= self.enough, share, 0)
        share = share / share.sum() if share.any() else torch.full_like(share, 1 / len(share))
        return rollout((self.least + apportioned(share, total)).to(tasks.device))

    def measured(self, source: GradientNormSource, experience: Experience, tasks: int) -> tuple[Tensor, Tensor]:
        """Returns G and p of the first round, each [tasks], on the CPU."""
        accepted = self.right(experience)
        norm, count, kept = torch.zeros(tasks, dtype=torch.float64), torch.zeros(tasks), experience[accepted]
        if len(kept):
            place = kept.group.cpu()
            norm.index_add_(0, place, source.gradient_norms(kept, self.block).double().cpu())
            count = place.bincount(minlength=tasks)
        return norm / count.clamp(min=1), count / self.first
