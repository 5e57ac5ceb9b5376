"""NFT: supervised learning on right answers, and on wrong ones through an implicit negative policy."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.method import Paper, method
from polopt.objectives import SequenceSum, Surrogate, TokenRatio
from polopt.objectives.parts import SurrogateTerm
from polopt.sampling import MixedGroups, Rollouts


@method(
    paper=Paper(
        title="NFT: Bridging Supervised Learning and Reinforcement Learning in Math Reasoning",
        authors="Chen, Huayu and others",
        year=2025,
        arxiv="2505.18116",
    ),
    changes="RFT that also learns from wrong answers: their likelihood under the policy that the right ones imply.",
    room="objectives",
    tier="faithful",
)
def nft(
    *,
    group: int = 16,
    omega: Literal["dr-grpo", "grpo", "none"] = "dr-grpo",
    floor: float = 1.0,
    refills: int = 9,
) -> Algorithm:
    """With p the share of right answers in the group, y_i = 1 for a right one, R_it the ratio to the sampler,

        L = -(1 / (B C)) sum_it omega(p) [ y_i log R_it + (1 - y_i) log max((1 - p R_it) / (1 - p), floor) ]

    where the max keeps the gradient of its first argument. C is the batch's horizon. Unanimous groups are sampled
    again, as in DAPO. omega: 1 - p ("dr-grpo"), sqrt((1 - p) / p) ("grpo") or 1 ("none"). On policy the first has the
    gradient of Dr. GRPO, the second of GRPO with the population's standard deviation and the same reducer.

    Defaults are the published code's: omega 1 - p, floor 1, ratios of tokens, sums over tokens by a constant (1000
    there). It keeps p within [0.02, 0.98], which a group of 16 does by itself. The outcome is right if it reaches 1.
    """
    return Algorithm(
        sampling=Rollouts(group=group, select=[MixedGroups()], refills=refills),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(ratio=TokenRatio(), trust=NFTTerm(omega=omega, floor=floor), aggregate=SequenceSum()),
    )


class NFTTerm(SurrogateTerm):
    """-omega log R_t on right rows, -omega log max(x_t, floor) on wrong ones, x_t = (1 - p R_t) / (1 - p).

    The behaviour policy is a mixture of its distribution on right answers, with weight p, and on wrong ones. If the
    policy models the former, with R its ratio to the behaviour policy, the latter's ratio is x. p: the share of right
    rows, `right`, among those of the row's group in the whole optimiser batch, the row itself included.
    Unanimous groups have no complement and give 0, with zero gradient.

    floor (> 0): the value that x does not fall below; the gradient is that of x all the same, divided by the floored
    value: p R / ((1 - p) max(x, floor)) pushes a wrong decision down, finite also where 1 - p R <= 0. omega: weight of
    a group, "dr-grpo" 1 - p, "grpo" sqrt((1 - p) / p), "none" 1; on policy the first two have the gradient of the
    method of that name. The advantage is not read. Source: NFT, arXiv:2505.18116.
    """

    omega: Literal["dr-grpo", "grpo", "none"] = "dr-grpo"
    floor: float = 1.0
    right: RowMask = IsCorrect()

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        if self.floor <= 0:
            raise ValueError(f"methods.nft.NFTTerm: floor must be > 0, found {self.floor}")

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
        clipped = mixed & ~right & (implied < self.floor)
        return torch.where(mixed, omega * terms, 0), clipped.to(log_ratio.dtype)

    def _rates(self, experience: Experience, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns whether each row is right, and the share of right rows in its group, [B, 1] each."""
        right = self.right(experience.full_batch)
        rate = ops.group_mean(right.to(dtype), experience.full_batch.group)
        return experience.local_rows(right)[:, None], experience.local_rows(rate)[:, None]
