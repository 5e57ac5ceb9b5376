"""Credit between prompts: advantages of a prompt's answers relative to those of other prompts."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt


class AcrossGroups(Credit):
    """A_i = (m_g - mean m) / (std m + eps), m_g the mean return of row i's group, each group counted once.

    All rows of a group share it, so that a unanimous group has an advantage, too: negative if all rows are wrong,
    positive if all are right. std is the sample's. One group, or groups that are all equal, have advantage 0.
    within: the grouping.

    The baseline compares prompts, not answers to one prompt: easy prompts get positive advantages for being easy.
    """

    eps: float = 1e-6
    within: Grouping = SamePrompt()

    reads = frozenset({"reward"})

    def setup(self) -> None:
        if self.eps <= 0:
            raise ValueError(f"credit.AcrossGroups: eps must be > 0, found {self.eps}")

    def forward(self, experience: Experience) -> Tensor:
        returns, group = experience.returns().detach(), self.within(experience)
        index, count = ops.group_index(group)
        means = returns.new_zeros(len(count)).index_copy(0, index, ops.group_mean(returns, group))
        one = torch.zeros_like(count)
        score = (means - ops.group_mean(means, one)) / (ops.group_std(means, one) + self.eps)
        return torch.where(experience.mask, score[index][:, None], 0)
