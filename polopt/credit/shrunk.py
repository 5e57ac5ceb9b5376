"""A baseline that shrinks the mean of a prompt's rollouts towards a predicted success rate."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Baseline
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt
from polopt.fields import ExperienceError


def trust_in_mean(mean: Tensor, prior: Tensor, variance: Tensor) -> Tensor:
    """Estimates the weight w of least error in w mean + (1 - w) prior, for a mean of this variance.

    w = D / (D + variance),   D = max(0, (mean - prior)^2 - variance)   (`ops.prior_error`)
    """
    apart = ops.prior_error(mean, prior, variance)
    return torch.where(apart > 0, apart / (apart + variance), 0)


class ShrunkMean(Baseline):
    """w mean + (1 - w) prior, with `mean` of the n returns of the row's group and w from `trust_in_mean`: the prior as
    long as the rollouts are consistent with it.

    prior: a success rate in [0, 1] for each row, known before its rollouts; rows of a group agree. low, high: the least
    and the greatest possible return, (0, 1) or (-1, 1); the prior is low + rate (high - low), and
    (high - low)^2 / 4n bounds the variance of the mean. weight: w itself, None estimates it; 1 is `GroupMean`, 0 the
    prior. others: mean and w are those of the *other* rows of the group, so that the baseline does not depend on the
    row and adds no bias; a group of one has the prior. within: the grouping.

    Source: V0.5, arXiv:2603.10848.

    Raises:
        ExperienceError: a return outside [low, high], or a prior outside [0, 1].
    """

    prior: RowFeature
    low: float = 0.0
    high: float = 1.0
    weight: float | None = None
    others: bool = False
    within: Grouping = SamePrompt()

    def setup(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"credit.ShrunkMean: need low < high, found {self.low} and {self.high}")
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise ValueError(f"credit.ShrunkMean: weight must be in [0, 1], found {self.weight}")

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        rate = self.prior(experience).to(returns.dtype)
        self._check(rate, "a prior success rate", 0, 1)
        self._check(returns, "returns", self.low, self.high)
        group, size = self.within(experience), self.high - self.low
        count = ops.group_size(group)
        if self.others:
            mean, count = ops.leave_one_out_mean(returns, group), count - 1
        else:
            mean = ops.group_mean(returns, group)
        prior = self.low + size * rate
        weight = self.weight
        if weight is None:
            trusted = trust_in_mean(mean, prior, size**2 / (4 * count.clamp(min=1).to(returns.dtype)))
        else:
            trusted = torch.full_like(returns, weight)
        fused = trusted * mean + (1 - trusted) * prior
        return torch.where(count > 0, fused, prior)

    @staticmethod
    def _check(x: Tensor, what: str, low: float, high: float) -> None:
        if len(x) and not ((x >= low) & (x <= high)).all():
            raise ExperienceError(
                f"credit.ShrunkMean needs {what} in [{low:g}, {high:g}] for every row, found {float(x.min()):g} to "
                f"{float(x.max()):g}; set low and high to the least and the greatest possible return, and give a rate "
                "as the prior"
            )
