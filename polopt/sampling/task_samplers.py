"""Task samplers that use records of each task's success rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.part_names import name_of
from polopt.sampling.parts import TaskSampler
from polopt.sampling.source_protocols import KindSource, Source
from polopt.sampling.success import SuccessCounts
from polopt.schedules import Schedule, now
from polopt.situation import Situation


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


class KindCurriculum(TaskSampler):
    """Selects tasks by kind, one stage of training after the other: a stage has the tasks of its kinds alone, in random
    order, but for a share `review` that are of earlier stages.

    levels: the kinds of each stage, the easiest first; none given makes each of the tasks' kinds a stage, in their
        world's order. Kinds that are not named are never taken.
    batches: batches that are learned from in each stage; the last one goes on to the end.
    review: in [0, 1).

    Raises:
        ExperienceError: none of the source's tasks is of a stage's kinds.
    """

    levels: Sequence[Sequence[str]] = ()
    batches: int = 20
    review: float = 0.0

    source_capabilities = frozenset({"kinds"})

    def setup(self) -> None:
        if self.batches < 1 or not 0 <= self.review < 1 or not all(len(kinds) for kinds in self.levels):
            raise ValueError(
                "sampling.KindCurriculum: needs batches >= 1, review in [0, 1) and kinds in every level, found "
                f"{self.batches}, {self.review} and {[list(kinds) for kinds in self.levels]}"
            )
        self.register_buffer("learned", torch.zeros((), dtype=torch.int64))
        self._count = max(1, len(self.levels))  # of the source's kinds, once they are known

    def refusals(self, situation: Situation) -> Iterator[str]:
        unknown = {kind for kinds in self.levels for kind in kinds} - set(situation.kinds)
        if unknown:
            yield (
                f"levels name the kinds {', '.join(sorted(unknown))}, and the tasks are of the kinds "
                f"{', '.join(situation.kinds)}; name those"
            )
        elif not self.levels and len(situation.kinds) < 2:
            yield (
                f"orders tasks by their kinds, and all are of the kind {situation.kinds[0]}; take tasks of several "
                "kinds, or another task sampler"
            )

    def stage(self, levels: int) -> int:
        """Returns the number of the present stage, of so many."""
        return min(int(self.get_buffer("learned")) // self.batches, levels - 1)

    def forward(self, source: KindSource, count: int) -> Tensor:
        levels = [tuple(kinds) for kinds in self.levels] or [(kind,) for kind in source.kinds]
        self._count = len(levels)
        stage = self.stage(self._count)
        earlier = tuple(kind for kinds in levels[:stage] for kind in kinds)
        again = round(self.review * count) if earlier else 0
        needs = ((levels[stage], count - again), (earlier, again))
        found: tuple[list[int], list[int]] = ([], [])
        drawn = 0
        while any(len(some) < number for some, (_, number) in zip(found, needs, strict=True)):
            tasks = source.take(count)
            drawn += count
            for task, kind in zip(tasks.tolist(), source.kinds_of(tasks), strict=True):
                for some, (kinds, number) in zip(found, needs, strict=True):
                    if kind in kinds and len(some) < number:
                        some.append(task)
                        break
            for some, (kinds, number) in zip(found, needs, strict=True):
                if number and not some and drawn > 2 * source.size + count:
                    raise ExperienceError(
                        f"sampling.KindCurriculum: no task is of the kinds {', '.join(kinds)}; name kinds that the "
                        f"tasks have, of {', '.join(source.kinds)}"
                    )
        return torch.tensor(found[0] + found[1])

    def on_step(self) -> None:
        self.get_buffer("learned").add_(1)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the number of the batch's stage, from 0."""
        return {"choice/stage": float(self.stage(self._count))}
