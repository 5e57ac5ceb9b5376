"""POPE: hard tasks are trained both as they are and from the middle of their solutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling.parts import PromptAugmenter, RolloutRequest, Start
from polopt.sampling.source_protocols import SolutionSource, Source
from polopt.sampling.task_table import TaskTable
from polopt.support import Support


@method(
    paper=Paper(
        title="POPE: Learning to Reason on Hard Problems via Privileged On-Policy Exploration",
        authors="Qu, Yuxiao and others",
        year=2026,
        arxiv="2601.18779",
    ),
    changes="GRPO in which every task comes twice: as it is, and behind the shortest beginning of its solution that "
    "helps.",
    room="sampling",
    tier="reading",
)
def pope(
    *,
    group: int = 8,
    checkpoints: int = 8,
    most: float = 0.25,
    tries: int = 8,
    moving: bool = False,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """A task x comes twice, as it is and behind the shortest beginning of its worked solution z that helps:

        y ~ pi(y | x),    y ~ pi(y | x, z_1, ..., z_n),    n = n_k
        n_j = round(most |z| j / checkpoints),    k = min {j : some rollout behind n_j is right}

    The two are groups of their own, each with its own baseline. The beginning is read and never in the loss: no
    imitation. At test time there is none. `most` is the longest share of a solution that is ever given away, the one
    that is given where no j = 0, ..., checkpoints helps; `tries` rollouts begin at each j, once, when a task comes for
    the first time. They cost samples that are in no batch. moving=True lets the beginning grow and shrink with
    what its groups show instead: an annealed variant, not the paper's.

    Deviations. In the paper the beginning stands in the prompt, with an instruction to go on from it; here it is the
    beginning of the answer itself, so that what is learned behind it is known where the policy gets that far alone.
    Both are tokens that are read. The paper trains on hard tasks alone, those that no rollout of the base model
    solves: choose such tasks. They must come with worked solutions: of a
    solution that is the bare result its beginning gives the result away. We had no access to the authors' program;
    group, clip and kl are GRPO's usual ones.
    """
    guide = SolutionPrefixes(checkpoints=checkpoints, most=most, tries=tries, moving=moving)
    return grpo(group=group, clip=clip, kl=kl).but({"sampling.guide": guide})


class SolutionPrefixes(PromptAugmenter):
    """Returns each task twice: as it is, and with the shortest prefix of its demonstrated solution from which a rollout
    succeeds.

    A solution has checkpoints k = 0 to `checkpoints`, after the fraction most * k / checkpoints of its decisions. When
    a task comes for the first time, `tries` rollouts (over `support`) continue from each checkpoint in turn, until one
    of them is `right`: the task's guided group begins there from then on, or at the last checkpoint if none does.
    These trial rollouts are in no batch. A task that is solved from checkpoint 0 is returned twice as it is.

    moving: a guided group moves its task's checkpoint, back by one if any of its rows solved the task, else forward by
        one.
    tries: trial rollouts from each checkpoint; with 0 a task begins at the last checkpoint.

    The checkpoints change in training mode only.

    Source: POPE, arXiv:2601.18779, where checkpoints stay.
    """

    checkpoints: int = 8
    most: float = 0.25
    tries: int = 8
    moving: bool = False
    right: RowMask = IsCorrect()
    support: Support = Support()

    each: ClassVar[int] = 2
    source_capabilities = frozenset({"demonstrations", "solutions"})

    def setup(self) -> None:
        if self.checkpoints < 1 or not 0 <= self.most <= 1 or self.tries < 0:
            raise ValueError(
                "methods.pope.SolutionPrefixes: need checkpoints >= 1, most in [0, 1] and tries >= 0, found "
                f"{self.checkpoints}, {self.most} and {self.tries}"
            )
        self.table = TaskTable(checkpoint=-1.0)  # -1: the task has not come yet

    def forward(self, source: SolutionSource, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        column = self.table.sized(source.size).column("checkpoint")
        lengths, reached = source.solution_lengths(tasks), column[tasks.to(column.device)].cpu()
        new = reached < 0
        if new.any():
            reached[new] = self._search(source, tasks[new], lengths[new]).to(reached)
            if self.training:
                column[tasks.to(column.device)] = reached.to(column.device)
        starts = [start for count in self._given(lengths, reached).tolist() for start in (Start(), Start(given=count))]
        return tasks.repeat_interleave(2), starts

    def _given(self, lengths: Tensor, checkpoint: Tensor) -> Tensor:
        """Returns the length of each prefix, [M]; at least one decision is left to the policy."""
        share = self.most * checkpoint.double() / self.checkpoints
        return (share * lengths).round().long().minimum(lengths - 1)

    def _search(self, source: Source, tasks: Tensor, lengths: Tensor) -> Tensor:
        """Returns the first checkpoint [M] from which some rollout is `right`; the last one if none does."""
        found = torch.full_like(lengths, self.checkpoints)
        left = torch.arange(len(lengths))
        for k in range(self.checkpoints + 1) if self.tries else ():
            given = self._given(lengths[left], torch.full_like(left, k)).tolist()
            starts = [Start(given=count) for count in given]
            tried = source.rollout(RolloutRequest(tasks[left], self.tries, self.support, starts=starts))
            best = torch.zeros(len(left), dtype=torch.bool)
            best[tried.group[self.right(tried)].cpu()] = True
            found[left[best]] = k
            left = left[~best]
            if not len(left):
                break
        return found

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        given = experience.extras["given"].double()
        return {"given/rows": float((given > 0).double().mean()), "given/decisions": float(given.mean())}

    def observe(self, experience: Experience) -> None:
        if not (self.moving and self.training):
            return
        column = self.table.column("checkpoint")
        first = ops.group_first(experience.group)
        solved = ops.group_sum(self.right(experience).double(), experience.group)[first] > 0
        # The second of a task's two groups is its guided one.
        guided = (experience.group[first] % 2 == 1).cpu()
        task = experience.extras["index"][first].to(column.device)[guided]
        step = torch.where(solved, -1.0, 1.0).to(column)[guided]
        column[task] = (column[task] + step).clamp(0, self.checkpoints)
