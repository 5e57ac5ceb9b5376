"""Records of each task's success rate."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.part import Part
from polopt.sampling.task_table import TaskTable


class SuccessCounts(Part):
    """Counts of right and wrong rollouts of each task with decay: a + right and b + wrong, as in Beta(a, b).

    prior: a and b, the counts of an untried task; (0, 0) for no prior, with rates NaN.
    keep_all: factor on every task's counts at each batch of rollouts, as the policy changes.
    keep_used: further factor on the counts of the batch's own tasks, on which the policy changes most.

    The new rollouts are added after the decay; a rollout counts as right by its `outcome`, clamped to [0, 1].

    The settings keep_all=1 and keep_used=1 are the posterior of a fixed policy; keep_used=0 and prior=(0, 0) are the
    success rate of the last visit; in between keep_used is the decay of a moving average. Rollouts that began with a
    prefix of the solution or a hidden hint do not count. Counts change in training mode only. Source: VADE,
    arXiv:2511.18902, where the two factors are called two scales.
    """

    prior: tuple[float, float] = (1.0, 1.0)
    keep_all: float = 1.0
    keep_used: float = 1.0

    reads = frozenset({"outcome", "extras.index"})

    def setup(self) -> None:
        if min(self.prior) < 0 or (0 in self.prior and max(self.prior) > 0):
            raise ValueError(f"sampling.SuccessCounts: prior needs two numbers > 0, or both 0, found {self.prior}")
        if not (0 <= self.keep_all <= 1 and 0 <= self.keep_used <= 1):
            raise ValueError(
                f"sampling.SuccessCounts: keep_all and keep_used must be in [0, 1], found {self.keep_all} and "
                f"{self.keep_used}"
            )
        self.table = TaskTable(right=0.0, wrong=0.0)

    def observe(self, experience: Experience) -> None:
        """Adds these rollouts to the counts."""
        experience.require(self.reads, by=self)
        if not self.training:
            return
        right, wrong = self.table.column("right"), self.table.column("wrong")
        plain = unaided(experience)
        tasks = experience.extras["index"][plain].to(right.device)
        share = experience.outcome[plain].to(right).clamp(0, 1)
        for column, new in ((right, share), (wrong, 1 - share)):
            column *= self.keep_all
            column[tasks.unique()] *= self.keep_used
            column.index_add_(0, tasks, new)

    def counts(self, size: int) -> tuple[Tensor, Tensor]:
        """Returns a + right and b + wrong, each [tasks]."""
        table = self.table.sized(size)
        return self.prior[0] + table.column("right"), self.prior[1] + table.column("wrong")

    def rates(self, size: int) -> Tensor:
        """Returns the posterior means (a + right) / (a + b + right + wrong), [tasks], NaN for a task without counts and
        prior."""
        a, b = self.counts(size)
        return a / (a + b)

    def drawn(self, size: int, generator: torch.Generator) -> Tensor:
        """Samples a success rate from each task's posterior, [tasks]."""
        a, b = (torch._standard_gamma(count.to(generator.device), generator=generator) for count in self.counts(size))
        return a / (a + b)


def unaided(experience: Experience) -> Tensor:
    """Returns the mask [B] of rollouts of the plain task, without a solution prefix or a hidden hint."""
    plain = torch.ones(len(experience), dtype=torch.bool, device=experience.device)
    for name in ("given", "hinted"):
        if name in experience.extras:
            plain &= experience.extras[name] == 0
    return plain
