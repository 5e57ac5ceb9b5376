"""Likelihood of right answers, and of wrong ones under the policy that the right ones imply."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import SurrogateTerm


class NFTTerm(SurrogateTerm):
    """-omega log R_t on right rows, -omega log max(x_t, floor) on wrong ones, x_t = (1 - p R_t) / (1 - p).

    The behaviour policy is a mixture of its distribution on right answers, with weight p, and on wrong ones. If the
    policy models the former, with R its ratio to the behaviour policy, the latter's ratio is x. p: the share of right
    rows (outcome >= threshold) among those of the row's group in the whole optimiser batch, the row itself included.
    Unanimous groups have no complement and give 0, with zero gradient.

    floor (> 0): the value that x does not fall below; the gradient is that of x all the same, divided by the floored
    value: p R / ((1 - p) max(x, floor)) pushes a wrong decision down, finite also where 1 - p R <= 0. omega: weight of
    a group, "dr-grpo" 1 - p, "grpo" sqrt((1 - p) / p), "none" 1; on policy the first two have the gradient of the
    method of that name. The advantage is not read. Source: NFT, arXiv:2505.18116.
    """

    omega: Literal["dr-grpo", "grpo", "none"] = "dr-grpo"
    floor: float = 1.0
    threshold: float = 1.0

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        if self.floor <= 0:
            raise ValueError(f"objectives.NFTTerm: floor must be > 0, found {self.floor}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        right, rate = self._rates(experience, log_ratio.dtype)
        mixed = (rate > 0) & (rate < 1)
        rate = torch.where(mixed, rate, 0.5)
        implied = (1 - rate * log_ratio.exp()) / (1 - rate)
        floored = implied.detach().clamp(min=self.floor)
        # The value of log floored, the gradient of x over it; x + (floored - x) would lose all digits of a large x.
        wrong = floored.log() + (implied - implied.detach()) / floored
        terms = -torch.where(right, log_ratio, wrong)
        omega = {"dr-grpo": 1 - rate, "grpo": ((1 - rate) / rate).sqrt(), "none": torch.ones_like(rate)}[self.omega]
        held = mixed & ~right & (implied < self.floor)
        return torch.where(mixed, omega * terms, 0), held.to(log_ratio.dtype)

    def _rates(self, experience: Experience, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns whether each row is right, and the share of right rows in its group, [B, 1] each."""
        right = experience.full_batch.outcome >= self.threshold
        rate = ops.group_mean(right.to(dtype), experience.full_batch.group)
        return experience.local_rows(right)[:, None], experience.local_rows(rate)[:, None]
