"""Task samplers that use records of each task's success rate."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.part_names import name_of
from polopt.sampling.parts import TaskSampler
from polopt.sampling.source_protocols import Source
from polopt.sampling.success import SuccessCounts
from polopt.schedules import Schedule, now


def foremost(score: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Returns the places [count] of the highest scores [N], ties in random order; beyond N the ranking repeats."""
    order = torch.randperm(len(score), generator=generator, device=generator.device).to(score.device)
    ranked = order[score[order].argsort(descending=True, stable=True)]
    return ranked.repeat(-(-count // len(ranked)))[:count]


def worth(p: Tensor, by: Literal["gain", "variance"]) -> Tensor:
    """Returns the score of a task of success rate p: p (1 - p)^2 for "gain", p (1 - p) for "variance"."""
    return p * (1 - p) ** (2 if by == "gain" else 1)


class TopScore(TaskSampler):
    """Selects the tasks of the highest score, a function of their success rate; ties in random order.

    success: the record of success rates.
    draw: whether a task's rate is sampled from its posterior (Thompson sampling), which explores tasks with few
        rollouts, or is the posterior mean.
    """

    success: SuccessCounts = SuccessCounts()
    draw: bool = True

    def setup(self) -> None:
        if not min(self.success.prior):
            raise ValueError(
                f"{name_of(type(self))}: success needs a prior for tasks without rollouts, found prior "
                f"{self.success.prior}"
            )

    def score(self, p: Tensor) -> Tensor:
        """Returns a score of each task from its success rate, both [tasks]."""
        raise NotImplementedError

    def forward(self, source: Source, count: int) -> Tensor:
        size, generator = source.size, source.generator
        p = self.success.drawn(size, generator) if self.draw else self.success.rates(size)
        return foremost(self.score(p), count, generator).cpu()

    def observe(self, experience: Experience) -> None:
        self.success.observe(experience)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the fraction of all tasks that were tried, their mean expected success and the batch's mean task
        score.

        The score is over the batch's rows, at the expected success of their tasks.
        """
        table, index = self.success.table, experience.extras["index"]
        right, wrong = table.column("right"), table.column("wrong")
        if not len(right):
            return {}
        p = self.success.rates(len(right))
        chosen = self.score(p)[index.to(p.device)]
        return {
            "choice/tried": float((right + wrong > 0).double().mean()),
            "choice/success": float(p.mean()),
            "choice/score": float(chosen.mean()),
        }


class Curriculum(TopScore):
    """Selects the tasks whose success rate is nearest to `target`, a number or a schedule: from easy to hard as it
    falls."""

    target: float | Schedule = 0.5
    draw: bool = False

    def score(self, p: Tensor) -> Tensor:
        return -(p - now(self.target)).abs()


class ConsecutiveTasks(TaskSampler):
    """Selects tasks in runs of `each` consecutive numbers: 0 to each - 1, each to 2 each - 1, and so on.

    A shorter last run is left out. If every task of the data has `each` consecutive phrasings, a batch holds all of
    them.

    Raises:
        ValueError: the source has fewer tasks than one run.
    """

    each: int

    def setup(self) -> None:
        if self.each < 1:
            raise ValueError(f"sampling.ConsecutiveTasks: each must be >= 1, found {self.each}")

    def forward(self, source: Source, count: int) -> Tensor:
        runs = source.size // self.each
        if not runs:
            raise ValueError(
                f"sampling.ConsecutiveTasks: runs of {self.each} tasks need at least as many, found {source.size}; "
                "set each"
            )
        first = source.take(max(1, count // self.each)) % runs * self.each
        return (first[:, None] + torch.arange(self.each)).flatten()
