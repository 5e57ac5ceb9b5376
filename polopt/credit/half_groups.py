"""Credit between the two halves of a group."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt, single_row_groups
from polopt.features.rows import amount
from polopt.fields import check_shape
from polopt.schedules import Schedule
from polopt.situation import Situation


class HalfGroupAdvantage(Credit):
    """A = mu * inter + (1 - mu) * intra, with each group halved by a measure; m_U, m_L are the halves' mean returns:

        inter: upper * R - lower * m_L in the upper half, lower * R - upper * m_U in the lower
        intra: R - m_U in the upper half,                 R - m_L in the lower

    by: the measure that splits a group; the lower half has floor(n / 2) of n rows. mu: a number, a schedule, or a
    number for each row. upper, lower: factors on the halves' returns where halves are compared; the larger one
    favours its half.

    Tied rows at the border count in both halves, by their share (`upper_share`). A group of equal rows is therefore
    centred on its mean, and a group of one has advantage 0. Equal halves and mu = 1/2 with
    factors 1 give R minus the group's mean. Source: CANON, arXiv:2509.23962.
    """

    by: RowFeature
    mu: float | Schedule | RowFeature = 1.0
    upper: float = 1.0
    lower: float = 1.0
    within: Grouping = SamePrompt()

    reads = frozenset({"reward"})

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within, situation)

    def forward(self, experience: Experience) -> Tensor:
        returns, group = experience.returns().detach(), self.within(experience)
        measured = check_shape(self.by(experience), returns, self.by)
        share = upper_share(measured.double(), group).to(returns.dtype)
        high, low = _mean(returns, share, group), _mean(returns, 1 - share, group)
        inter = share * (self.upper * returns - self.lower * low)
        inter = inter + (1 - share) * (self.lower * returns - self.upper * high)
        inter = torch.where(ops.group_size(group) > 1, inter, 0)
        intra = share * (returns - high) + (1 - share) * (returns - low)
        mu = amount(self.mu, experience)
        advantage = (mu * inter + (1 - mu) * intra).to(returns.dtype)
        return torch.where(experience.mask, advantage[:, None], 0)


def upper_share(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Returns 1 for rows in the upper half of their group by x, 0 in the lower, which holds floor(n / 2) of n rows.

    Tied rows at the border belong to both halves, each by the fraction of them above it, so that the order of the
    rows has no influence.
    """
    below, level = ops.places(x, group)
    above = below + level - ops.group_size(group) // 2
    return above.clamp(min=0).minimum(level).to(x.dtype) / level


def _mean(x: Tensor, weight: Tensor, group: Tensor) -> Tensor:
    """Computes the weighted mean of each row's group; exactly x where the group is all equal, whatever the weights."""
    least = ops.group_least(x, group)
    mass = ops.group_sum(weight, group)
    return least + torch.where(mass > 0, ops.group_sum(weight * (x - least), group) / mass, 0)
