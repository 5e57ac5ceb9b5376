"""Baselines: what a row's return is compared with."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Baseline, Unit, fields_of_unit, row_weights
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt, single_row_groups
from polopt.situation import Situation


class GroupMean(Baseline):
    """Mean return of the row's group, itself included. On a group of n it shrinks the expected gradient by
    1 - 1/n. within: the grouping. unit: whether each row counts once, or each of its tokens, so that the sum of
    the advantages over the group's tokens is 0 (HAPO, arXiv:2509.16591), or by its weight as a leaf of a tree."""

    tags = frozenset({"update_rule=grpo"})

    within: Grouping = SamePrompt()
    unit: Unit = "row"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return fields_of_unit(self.unit)

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within, situation)

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        return ops.group_mean(returns, self.within(experience), row_weights(experience, self.unit))


class LeaveOneOut(Baseline):
    """Mean return of the *other* rows of the group: independent of the row, so unbiased. 0 for a group of one.

    Source: RLOO, arXiv:2402.14740.
    """

    tags = frozenset({"update_rule=grpo"})

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


class ConstantBaseline(Baseline):
    """The same number for every row, as the win rate 1/2 that two rows of one policy have on average."""

    value: float = 0.0

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        return torch.full_like(returns, self.value)


class PromptValue(Baseline):
    """The critic's value of the prompt, that before the row's first decision; 0 for a row without decisions."""

    reads = frozenset({"value"})

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        first = experience.mask.to(torch.uint8).argmax(1, keepdim=True)
        return torch.where(experience.mask, experience.value.detach(), 0).gather(1, first)[:, 0].to(returns.dtype)
