"""Outcome credit: a row's return relative to a baseline, in units of a scale, on each of its decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt, single_row_groups
from polopt.features.rows import amount
from polopt.fields import check_shape
from polopt.part import Part
from polopt.schedules import Schedule
from polopt.situation import Situation

# The unit of a group's statistics: a whole row, or each of its decisions.


def _count(experience: Experience, unit: str) -> Tensor | None:
    return experience.lengths if unit == "token" else None


class GroupMean(Baseline):
    """Mean return of the row's group, itself included. On a group of n it shrinks the expected gradient by
    1 - 1/n. within: the grouping. unit: whether each row counts once, or each of its tokens, so that the sum of
    the advantages over the group's tokens is 0 (HAPO, arXiv:2509.16591)."""

    within: Grouping = SamePrompt()
    unit: Literal["row", "token"] = "row"

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within, situation)

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        return ops.group_mean(returns, self.within(experience), _count(experience, self.unit))


class LeaveOneOut(Baseline):
    """Mean return of the *other* rows of the group: independent of the row, so unbiased. 0 for a group of one.

    Source: RLOO, arXiv:2402.14740.
    """

    within: Grouping = SamePrompt()

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        return ops.leave_one_out_mean(returns, self.within(experience))


class MovingAverage(Baseline):
    """Average return of earlier batches, b <- decay b + (1 - decay) mean, corrected for its zero start.

    The current batch enters only after its use, so that the baseline is independent of it. The first batch
    has baseline 0. The average is updated in training mode only.
    """

    decay: float = 0.9

    def setup(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"credit.MovingAverage: decay must be in [0, 1), found {self.decay}")
        # The sum of past means and the sum of their weights; their quotient is the corrected average.
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mass", torch.zeros((), dtype=torch.float64))

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        total, mass = self.get_buffer("total"), self.get_buffer("mass")
        average = (total / mass if mass > 0 else torch.zeros_like(total)).to(returns.dtype)
        if self.training and len(returns):
            total.mul_(self.decay).add_((1 - self.decay) * returns.mean().double())
            mass.mul_(self.decay).add_(1 - self.decay)
        return average.expand_as(returns)


class GreedyReturn(Baseline):
    """Return of the greedy answer to the same prompt, `extras["greedy_reward"]`. Source: ReMax, arXiv:2310.10505."""

    reads = frozenset({"extras.greedy_reward"})

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        return experience.extras["greedy_reward"].to(returns.dtype)


class GroupStd(Scale):
    """Standard deviation of the group's returns plus eps. correction 1 divides by n - 1, 0 by n. within, unit: as in
    `GroupMean`.

    A group whose returns are all equal, or of one row, has std 0. Relative to the group's mean its advantages
    are then 0; relative to anything else they are of the order 1 / eps.
    """

    eps: float = 1e-6
    correction: int = 1
    within: Grouping = SamePrompt()
    unit: Literal["row", "token"] = "row"

    def setup(self) -> None:
        if self.eps < 0:
            raise ValueError(f"credit.GroupStd: eps must be >= 0, found {self.eps}")

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within, situation)

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        count = _count(experience, self.unit)
        return ops.group_std(returns, self.within(experience), self.correction, count) + self.eps


class RelativeAdvantage(Credit):
    """A_i = (R_i - baseline_i) / scale_i on every decision of row i.

    R: [B] outcome, or the sum of a row's per-decision rewards. baseline None is 0, scale None is 1.
    A row that equals its baseline has advantage 0, whatever its scale.
    """

    baseline: Baseline | None = GroupMean()
    scale: Scale | None = GroupStd()

    reads = frozenset({"reward"})

    def forward(self, experience: Experience) -> Tensor:
        returns = experience.returns().detach()
        advantage = returns
        if self.baseline is not None:
            advantage = advantage - check_shape(self.baseline(experience, returns), returns, self.baseline)
        if self.scale is not None:
            scale = check_shape(self.scale(experience, returns), returns, self.scale)
            advantage = torch.where(advantage == 0, 0, advantage / scale)
        return torch.where(experience.mask, advantage[:, None], 0)


class WeightedAdvantage(Part):
    """One term of a `WeightedSum`: a credit and its weight, a number, a schedule, or a number for each row."""

    credit: Credit
    weight: float | Schedule | RowFeature = 1.0

    def forward(self, experience: Experience) -> Tensor:
        advantage, weight = self.credit(experience), amount(self.weight, experience)
        return advantage * (weight[:, None].to(advantage.dtype) if isinstance(weight, Tensor) else weight)


class WeightedSum(Credit):
    """sum_k weight_k A_k: a weighted sum of the advantages of several credits."""

    shares: Sequence[WeightedAdvantage]

    def setup(self) -> None:
        if not len(self.shares):
            raise ValueError("credit.WeightedSum needs at least one share, found none")

    def forward(self, experience: Experience) -> Tensor:
        return self.voices(experience).sum(-1)

    def voices(self, experience: Experience) -> Tensor:
        """Returns each term's weighted advantage, [B, T, K]."""
        return torch.stack([share(experience) for share in self.shares], -1)
