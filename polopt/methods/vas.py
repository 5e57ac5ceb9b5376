"""VAS, the sampling of MMR1: half of the tasks in turn, half in proportion to the variance of their outcomes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling.diversity import distinct, mean_edit_distance, self_bleu
from polopt.sampling.parts import RolloutRequest, TaskSampler
from polopt.sampling.source_protocols import Source
from polopt.sampling.task_table import TaskTable
from polopt.support import Support


@method(
    paper=Paper(
        title="MMR1: Enhancing Multimodal Reasoning with Variance-Aware Sampling and Open Resources",
        authors="Leng, Sicong and others",
        year=2025,
        arxiv="2509.21268",
    ),
    changes="GRPO with half of the tasks in turn and half in proportion to p (1 - p), measured anew every few batches.",
    room="sampling",
    tier="faithful",
)
def vas(
    *,
    group: int = 8,
    share: float = 0.5,
    every: int = 4,
    rollouts: int = 8,
    variance: float = 1.0,
    diversity: float = 0.0,
    measure: Measure = "distinct",
    momentum: float = 0.0,
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """Task sampling by scores from `rollouts` rollouts of every task, before the first batch and after every
    `every`-th:

        score_i = variance p_i (1 - p_i) + diversity D_i,    weight_i = (score_i - min) / (max - min + 1e-8)

    Of a batch, floor(share n) tasks are drawn with replacement in proportion to their weights; the others come in turn.

    Defaults are those of the authors' program, which was read for this, but for the temperature: it samples at 0.6, we
    at 1 (`.but(**{"sampling.support": Support(temperature=0.6)})`). There the diversity of answers is off, and its
    comment on momentum contradicts the computation (here: the share of the old weight that stays). The text
    combines both terms; with which coefficients is not known to us. The program adds self-BLEU as it is, which rewards
    answers that are alike, and edit distances without a scale; here D is 1 - self-BLEU, and a distance over the longest
    answer's length. It goes through one order of the tasks again and again; ours is shuffled each time. If no task
    varies, all weights are 0 and its draw fails; here all tasks then come in turn.

    Measuring costs rollouts of every task, which count as sampled: with 64 tasks and 16 a batch they double the cost.
    """
    choice = VariancePromotingSampler(
        share=share,
        every=every,
        rollouts=rollouts,
        variance=variance,
        diversity=diversity,
        measure=measure,
        momentum=momentum,
    )
    return grpo(group=group, clip=clip, kl=kl).but(**{"sampling.choice": choice})


Measure = Literal["distinct", "self-bleu", "edit distance"]


EPS = 1e-8


# Rollouts per request when all tasks are scored, if a batch has fewer rows.
AT_ONCE = 1024


class VariancePromotingSampler(TaskSampler):
    """Samples floor(share n) of n tasks with replacement, in proportion to their weights; the others come in turn.

    Before the first batch, and again after every `every` batches that were learned from, all tasks are rolled out
    `rollouts` times over `support`, which costs as much as any other rollouts. A task's score is

        variance p (1 - p) + diversity D

    with p the mean outcome and D in [0, 1] the diversity of its answers by `measure`: distinct-3, 1 - self-BLEU of
    orders 1 to 3, or the mean edit distance over the length of the longest answer. New weights are the scores, scaled
    to [0, 1] over all tasks; `momentum` is the fraction of the old weights in them. If all weights are 0, all tasks
    come in turn. Weights change in training mode only. Source: variance-aware sampling in MMR1, arXiv:2509.21268.
    """

    share: float = 0.5
    every: int = 4
    rollouts: int = 8
    variance: float = 1.0
    diversity: float = 0.0
    measure: Measure = "distinct"
    momentum: float = 0.0
    support: Support = Support()

    def setup(self) -> None:
        if not (0 <= self.share <= 1 and 0 <= self.momentum <= 1):
            raise ValueError(
                f"methods.vas.VariancePromotingSampler: share and momentum must be in [0, 1], found {self.share} and "
                f"{self.momentum}"
            )
        if self.every < 1 or self.rollouts < 1:
            raise ValueError(
                f"methods.vas.VariancePromotingSampler: need every >= 1 and rollouts >= 1, found {self.every} and "
                f"{self.rollouts}"
            )
        self.table = TaskTable(weight=0.0)
        # Batches learned from since the weights were last updated; -1 before the first update.
        self.register_buffer("age", torch.tensor(-1))

    def forward(self, source: Source, count: int) -> Tensor:
        weights, age = self.table.sized(source.size).column("weight"), self.get_buffer("age")
        by_lot = int(self.share * count)
        if by_lot and self.training and not 0 <= int(age) < self.every:
            new = self.scores(source)
            new = (new - new.min()) / (new.max() - new.min() + EPS)
            weights.copy_(new if int(age) < 0 else torch.lerp(new, weights, self.momentum))
            age.zero_()
        if not by_lot or not weights.any():
            return source.take(count)
        probs = weights.to(source.generator.device)
        drawn = torch.multinomial(probs, by_lot, replacement=True, generator=source.generator).cpu()
        return torch.cat([drawn, source.take(count - by_lot)]) if by_lot < count else drawn

    def on_step(self) -> None:
        age = self.get_buffer("age")
        age += age >= 0

    def scores(self, source: Source) -> Tensor:
        """Returns each task's score, [tasks], from new rollouts."""
        found = []
        for tasks in torch.arange(source.size).split(max(1, max(source.rows, AT_ONCE) // self.rollouts)):
            found.append(self._score(source.rollout(RolloutRequest(tasks, self.rollouts, self.support))))
        return torch.cat(found).to(self.table.column("weight"))

    def _score(self, experience: Experience) -> Tensor:
        p = ops.group_mean(experience.outcome.double(), experience.group)[ops.group_first(experience.group)]
        score = self.variance * p * (1 - p)
        if self.diversity:
            spread = [different(experience[experience.group == g], self.measure) for g in experience.group.unique()]
            score = score + self.diversity * torch.tensor(spread, dtype=torch.float64, device=score.device)
        return score


def different(experience: Experience, measure: Measure) -> float:
    """Returns the diversity of the rows' decisions, in [0, 1]."""
    pairs = zip(experience.extras["tokens"], experience.mask, strict=True)
    answers = [tokens[mask].tolist() for tokens, mask in pairs]
    if measure == "distinct":
        return distinct(answers)
    if measure == "self-bleu":
        return 1 - self_bleu(answers)
    return mean_edit_distance(answers) / max(1, *map(len, answers))
