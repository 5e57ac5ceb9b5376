"""Rewards of other rewards: scaled, clipped, conditional, combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.fields import ExperienceError
from polopt.part_names import name_of
from polopt.rewards.outcomes import OutcomeReward
from polopt.rewards.parts import Reward


class ScaledReward(Reward):
    """Outcomes divided by their running standard deviation: R / std, or (R - mean) / std if centred.

    mean and std (n - 1 in its denominator) are those of all earlier batches; the current batch is added only after it
    was scaled, so that no row is scaled by its own statistics. Until two outcomes that differ have been seen, std is 1.
    The statistics are updated in training mode only. MOSS-RLHF adds the batch before it scales it. Source: reward
    scaling in PPO-max, arXiv:2307.04964.

    Raises:
        ExperienceError: the reward is per decision; the standard deviation is that of outcomes.
    """

    tags = frozenset[str]()

    reward: Reward = OutcomeReward()
    centred: bool = False

    def setup(self) -> None:
        for name in ("count", "mean", "squares"):  # squares: the sum of squared deviations from the mean
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def forward(self, experience: Experience) -> Tensor:
        reward = self.reward(experience)
        if reward.ndim != 1:
            raise ExperienceError(
                f"rewards.ScaledReward needs one reward for each row, [{len(reward)}], found {list(reward.shape)}; "
                "scale the "
                "outcome and add what is per decision afterwards"
            )
        count, mean, squares = (self.get_buffer(name) for name in ("count", "mean", "squares"))
        std = (squares / (count - 1).clamp(min=1)).sqrt()
        std = torch.where(std > 0, std, 1).to(reward.dtype)
        scaled = (reward - mean.to(reward.dtype) if self.centred else reward) / std
        if self.training and len(reward):
            self._see(reward.double())
        return scaled

    def _see(self, reward: Tensor) -> None:
        count, mean, squares = (self.get_buffer(name) for name in ("count", "mean", "squares"))
        n, delta, before = len(reward), reward.mean() - mean, count.clone()
        count.add_(n)
        mean.add_(delta * n / count)
        squares.add_((reward - reward.mean()).square().sum() + delta.square() * before * n / count)


class ClippedReward(Reward):
    """The reward clipped to [-limit, limit]."""

    tags = frozenset[str]()

    reward: Reward
    limit: float

    def setup(self) -> None:
        if self.limit <= 0:
            raise ValueError(f"rewards.ClippedReward: limit must be > 0, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        return self.reward(experience).clamp(-self.limit, self.limit)


class PositiveReward(RowMask):
    """Marks rows whose `reward` [B] is above `above`."""

    reward: Reward
    above: float = 0.0

    def forward(self, experience: Experience) -> Tensor:
        return self.reward(experience) > self.above


class ConditionalReward(Reward):
    """The reward where `when` holds, `otherwise` elsewhere."""

    tags = frozenset[str]()

    reward: Reward
    when: RowMask
    otherwise: float = 0.0

    def forward(self, experience: Experience) -> Tensor:
        reward, when = self.reward(experience), self.when(experience)
        return torch.where(when if reward.ndim == 1 else when[:, None], reward, self.otherwise)


class CombinedReward(Reward):
    """A combination of several rewards by a rule: `rule(values [K, ...], weights [K]) -> [...]`.

    Outcomes [B] are placed on the last decision if any term is per decision and the rule applies to single decisions
    (`by_decision`); `rewarded` stores the outcomes of rows without decisions in `extras["row_reward"]`.

    weights: one per term; none given means 1 each.

    Raises:
        ExperienceError: a term is per decision, and the rule applies to whole rows only.
    """

    tags = frozenset[str]()

    terms: Sequence[Reward]
    weights: Sequence[float] = ()

    by_decision: ClassVar[bool] = False

    def setup(self) -> None:
        if not len(self.terms):
            raise ValueError(f"{name_of(type(self))} needs at least one term, found none")
        if self.weights and len(self.weights) != len(self.terms):
            raise ValueError(
                f"{name_of(type(self))}: {len(self.terms)} terms need as many weights, found {len(self.weights)}"
            )

    def rule(self, values: Tensor, weights: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, experience: Experience) -> Tensor:
        return self._combined(self._values(experience), experience.mask)

    def rewarded(self, experience: Experience) -> Experience:
        values = self._values(experience)
        found = experience.replace(reward=self._combined(values, experience.mask))
        if found.reward.ndim == 1:
            return found
        # A row without decisions has no reward per decision.
        rows = torch.stack([v if v.ndim == 1 else v.new_zeros(len(v)) for v in values])
        return found.replace(extras={"row_reward": self._ruled(rows)})

    def _values(self, experience: Experience) -> list[Tensor]:
        values = [term(experience) for term in self.terms]
        if any(v.ndim == 2 for v in values) and not self.by_decision:
            raise ExperienceError(
                f"{name_of(type(self))} needs terms of one reward for each row, [{len(experience)}], found shapes "
                f"{[list(v.shape) for v in values]}; add what is per decision afterwards, with rewards.SumOfRewards"
            )
        return values

    def _combined(self, values: Sequence[Tensor], mask: Tensor) -> Tensor:
        if any(v.ndim == 2 for v in values):
            values = [ops.per_decision_reward(v, mask) for v in values]
        return self._ruled(torch.stack(list(values)))

    def _ruled(self, values: Tensor) -> Tensor:
        weights = torch.tensor(self.weights or [1.0] * len(values), dtype=values.dtype, device=values.device)
        return self.rule(values, weights)


class SumOfRewards(CombinedReward):
    """Weighted sum of rewards. Outcomes [B] are placed on the last decision if any term is per decision.

    weights: one per term; none given means 1 each.
    """

    by_decision = True

    def rule(self, values: Tensor, weights: Tensor) -> Tensor:
        return (weights.reshape(-1, *[1] * (values.ndim - 1)) * values).sum(0)


class GeometricMean(CombinedReward):
    """Geometric mean of the terms, (prod_k u_k^w_k)^(1 / sum w): 0 where any term is, so that no term compensates
    another.

    With two terms of equal weight it is the root of the Nash product.

    floor: lower bound of each term; with 0 a single zero would make all answers equal, and a product of negative terms
        is meaningless.
    """

    floor: float = 1e-4

    def setup(self) -> None:
        super().setup()
        if self.floor <= 0 or min(self.weights, default=1.0) < 0 or sum(self.weights or [1.0]) <= 0:
            raise ValueError(
                "rewards.GeometricMean: need floor > 0 and weights >= 0, not all 0, found "
                f"floor={self.floor}, weights={list(self.weights)}"
            )

    def rule(self, values: Tensor, weights: Tensor) -> Tensor:
        return geometric_mean(values, weights, self.floor)


class MinimumReward(CombinedReward):
    """The smallest of the terms: the welfare of the worst-off party. The size of a weight > 0 makes no difference."""

    def setup(self) -> None:
        super().setup()
        if self.weights and not any(w > 0 for w in self.weights):
            raise ValueError(f"rewards.MinimumReward needs a weight > 0, found {list(self.weights)}")

    def rule(self, values: Tensor, weights: Tensor) -> Tensor:
        return least(values, weights)


def geometric_mean(values: Tensor, weights: Tensor, floor: float = 0.0) -> Tensor:
    """Returns (prod_k u_k^w_k)^(1 / sum w) over the first dimension, with u_k clamped to floor from below.

    Equal values are their own mean. With equal weights it is the Nash product on the scale of one utility. Products of
    negative numbers would turn two losses into a gain, so values are clamped, and the floor is >= 0.
    """
    shaped = weights.reshape(-1, *[1] * (values.ndim - 1))
    logs = torch.where(shaped > 0, shaped * values.clamp(min=floor).log(), 0)
    return (logs.sum(0) / weights.sum()).exp()


def least(values: Tensor, weights: Tensor) -> Tensor:
    """Returns the smallest of the values with a weight > 0, over the first dimension."""
    return values[weights > 0].amin(0)
