"""Credit for groups that include demonstrations."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Credit
from polopt.credit.relative import RelativeAdvantage
from polopt.experience import Experience


class IncludeDemonstrations(Credit):
    """Another credit that treats a demonstrated row as a row of its group like any other."""

    credit: Credit = RelativeAdvantage()

    judges_demonstrations: ClassVar[bool] = True

    def forward(self, experience: Experience) -> Tensor:
        return self.credit(experience)


class AnchoredDemonstrations(Credit):
    """Another credit, of the rollouts alone; a demonstration gets `factor` times the highest advantage of its group.

    Demonstrations then change no group's mean, and if factor > 1 their advantage exceeds that of every rollout. In a
    group whose rollouts are all equal, all advantages are 0, the demonstration's as well. Source: the advantage
    anchoring of TempSamp-R1, arXiv:2509.18056.
    """

    credit: Credit = RelativeAdvantage()
    factor: float = 1.2

    judges_demonstrations: ClassVar[bool] = True
    reads = frozenset({"group"})

    def setup(self) -> None:
        if self.factor < 0:
            raise ValueError(f"credit.AnchoredDemonstrations: factor must be >= 0, found {self.factor}")

    def forward(self, experience: Experience) -> Tensor:
        shown, mask = experience.is_demonstration, experience.mask
        if shown.all():
            return torch.zeros_like(mask, dtype=experience.precision)
        own = self.credit(experience[~shown])
        advantage = own.new_zeros(mask.shape).index_copy(0, (~shown).nonzero().flatten(), own)
        # The highest advantage of each rollout; -inf for demonstrations, so that they are no group's maximum.
        counts = mask & ~shown[:, None]
        highest = -ops.group_least(torch.where(counts, -advantage, torch.inf).amin(1), experience.group)
        anchor = torch.where(highest > -torch.inf, self.factor * highest, 0)
        return torch.where(shown[:, None], torch.where(mask, anchor[:, None], 0), advantage)
