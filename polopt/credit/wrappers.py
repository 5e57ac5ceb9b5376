"""Credits around other credits: scaled, clipped, whitened, summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.estimators import RelativeAdvantage
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import RowFeature, TokenFeature
from polopt.features.rows import setting_values
from polopt.fields import check_shape
from polopt.part import Part
from polopt.schedules import Schedule


class WeightedAdvantage(Part):
    """One term of a `WeightedSum`: a credit and its weight, a number, a schedule, or a number for each row."""

    credit: Credit
    weight: float | Schedule | RowFeature = 1.0

    def forward(self, experience: Experience) -> Tensor:
        advantage, weight = self.credit(experience), setting_values(self.weight, experience)
        return advantage * (weight[:, None].to(advantage.dtype) if isinstance(weight, Tensor) else weight)


class WeightedSum(Credit):
    """sum_k weight_k A_k: a weighted sum of the advantages of several credits."""

    shares: Sequence[WeightedAdvantage]

    def setup(self) -> None:
        if not len(self.shares):
            raise ValueError("credit.WeightedSum needs at least one share, found none")

    def forward(self, experience: Experience) -> Tensor:
        return self.advantages(experience).sum(-1)

    def advantages(self, experience: Experience) -> Tensor:
        """Returns each term's weighted advantage, [B, T, K]."""
        return torch.stack([share(experience) for share in self.shares], -1)


class WhitenedAdvantage(Credit):
    """(A - mean) / (std + eps) over the decisions of the whole batch, arXiv:2006.05990. 0 if there are none."""

    credit: Credit
    eps: float = 1e-8

    def forward(self, experience: Experience) -> Tensor:
        advantage, mask = self.credit(experience), experience.mask
        # Measured from the first decision, so that rounding gives an all-equal batch exactly 0.
        advantage = advantage - advantage[mask][:1].sum()
        centred = torch.where(mask, advantage - ops.masked_mean(advantage, mask), 0)
        std = (centred.square().sum() / (mask.sum() - 1).clamp(min=1)).sqrt()
        return centred / (std + self.eps)


class ClippedAdvantage(Credit):
    """The advantage, clipped to [-limit, limit]."""

    credit: Credit
    limit: float

    def setup(self) -> None:
        if self.limit <= 0:
            raise ValueError(f"credit.ClippedAdvantage: limit must be > 0, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        return self.credit(experience).clamp(-self.limit, self.limit)


class ModulatedAdvantage(Credit):
    """A'_it = times_it A_it + plus_it: another credit, scaled and shifted.

    times None is 1, plus None is 0. limit: |plus_it| is clipped to at most limit |times_it A_it|, so that at 1 it
    flips no advantage's sign and leaves an advantage of 0 unchanged.
    """

    credit: Credit
    times: TokenFeature | None = None
    plus: TokenFeature | None = None
    limit: float | None = None

    def setup(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"credit.ModulatedAdvantage: limit must be >= 0, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        advantage = self.credit(experience)
        if self.times is not None:
            advantage = advantage * self._read(self.times, experience, advantage)
        if self.plus is not None:
            bonus = self._read(self.plus, experience, advantage)
            if self.limit is not None:
                most = self.limit * advantage.abs()
                bonus = bonus.clamp(-most, most)
            advantage = advantage + bonus
        return advantage

    def _read(self, feature: TokenFeature, experience: Experience, advantage: Tensor) -> Tensor:
        return torch.where(experience.mask, feature(experience), 0).to(advantage.dtype)


class RewardTransform(Credit):
    """Another credit of transformed rewards, `worth(returns [B], experience) -> [B]`, one for each row.

    They replace the batch's reward, so that a critic is trained in the units in which its values are used.
    """

    credit: Credit = RelativeAdvantage()

    reads = frozenset({"reward"})

    def worth(self, returns: Tensor, experience: Experience) -> Tensor:
        raise NotImplementedError

    def credited(self, experience: Experience) -> Experience:
        returns = experience.returns().detach()
        worth = check_shape(self.worth(returns, experience), returns, self)
        return self.credit.credited(experience.replace(reward=worth))

    def forward(self, experience: Experience) -> Tensor:
        return self.credited(experience).advantage

    def value_target(self, experience: Experience) -> Tensor | None:
        return self.credited(experience).value_target
