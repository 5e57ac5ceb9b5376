"""Rewards of an answer's length, or of the unused rest of a limit."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import RowFeature, RowMask
from polopt.features.masks import IsCorrect
from polopt.features.rows import DecisionCount
from polopt.fields import ExperienceError
from polopt.rewards.parts import Reward


class LengthReward(Reward):
    """Base of rewards of a row's length.

    of: the row's length, by default its number of decisions; `features.TurnCount()` counts turns, and
        `features.RowField(name="signal_calls")` reads a number that the environment recorded.
    right: the rows that are right.
    """

    of: RowFeature = DecisionCount()
    right: RowMask = IsCorrect()

    reads = frozenset({"outcome"})

    def length(self, experience: Experience) -> Tensor:
        """Returns the length [B], in the outcome's precision."""
        return self.of(experience).to(experience.outcome.dtype)


class RelativeLength(LengthReward):
    """Reward -weight sigmoid((L_i - m) / s) for right rows, 0 for wrong ones.

    m and s are the mean and the population standard deviation of the length over the group's right rows. Where these
    all have the same length, or there is only one, the reward is -weight / 2. Source: arXiv:2502.04463.
    """

    of: RowFeature = DecisionCount()
    right: RowMask = IsCorrect()
    weight: float = 0.2

    reads_batch = True

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return super().reads | {"group"}

    def forward(self, experience: Experience) -> Tensor:
        right, length = self.right(experience), self.length(experience)
        among = ops.crossed(experience.group, right)
        std = ops.group_std(length, among, correction=0)
        z_score = torch.where(std > 0, (length - ops.group_mean(length, among)) / std, 0)
        return torch.where(right, -self.weight * torch.sigmoid(z_score), 0)


class LinearLength(LengthReward):
    """Reward weight (free - L_i / limit): with free = 0 a cost of the length, with free = 1 a bonus for the unused
    rest.

    rows: "all" rows, or the "right" ones alone, with 0 for the others.
    limit: the longest row; None takes the batch's horizon.

    Raises:
        ExperienceError: limit is None and the batch has no horizon.
    """

    of: RowFeature = DecisionCount()
    right: RowMask = IsCorrect()
    weight: float = 0.2
    free: float = 0.0
    limit: int | None = None
    rows: Literal["all", "right"] = "right"

    def setup(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"rewards.LinearLength: limit must be >= 1, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        limit = self.limit if self.limit is not None else experience.horizon
        if limit is None:
            raise ExperienceError(
                "rewards.LinearLength needs the longest row allowed: set LinearLength(limit=...) or give the batch "
                "its horizon, found neither"
            )
        worth = self.weight * (self.free - self.length(experience) / limit)
        return worth if self.rows == "all" else torch.where(self.right(experience), worth, 0)
