"""Reward parts: `reward(experience) -> [B] or [B, T]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.fields import ExperienceError
from polopt.part import Part
from polopt.part_names import name_of


class Reward(Part):
    """Base of reward parts: `reward(experience) -> [B]` outcome or `[B, T]` per decision, without gradient.

    reads_batch: whether a row's reward depends on other rows of the batch, so that the part must receive the whole
        batch.
    """

    reads_batch: ClassVar[bool] = False

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError

    def rewarded(self, experience: Experience) -> Experience:
        """Returns the batch with its `reward`, and with further fields that this reward provides for credit."""
        return experience.replace(reward=self(experience))


class EnvironmentReward(Reward):
    """The environment's own `reward` of the batch, [B] or [B, T]."""

    reads = frozenset({"reward"})

    def forward(self, experience: Experience) -> Tensor:
        reward = experience.reward
        return reward if reward.ndim == 1 else torch.where(experience.mask, reward, 0)


class OutcomeReward(Reward):
    """Reward scale * outcome + shift, of the world's outcome. Scale 2 and shift -1 map right/wrong 1/0 to +1/-1."""

    scale: float = 1.0
    shift: float = 0.0

    reads = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome * self.scale + self.shift


class OverlongPenalty(Reward):
    """Soft penalty of the length |y|, with L = limit and c = buffer:
        0 if |y| <= L - c;    (L - c - |y|) / c in between;    -1 beyond L.

    limit: None takes the batch's horizon.
    buffer: None is a fifth of the limit, the paper's 4,096 of 20,480.

    Source: DAPO, arXiv:2503.14476, equation 13.

    Raises:
        ExperienceError: limit is None and the batch has no horizon.
    """

    limit: int | None = None
    buffer: int | None = None

    def setup(self) -> None:
        if self.buffer is not None and self.buffer < 1:
            raise ValueError(f"rewards.OverlongPenalty: buffer must be >= 1, found {self.buffer}")

    def forward(self, experience: Experience) -> Tensor:
        limit = self.limit if self.limit is not None else experience.horizon
        if limit is None:
            raise ExperienceError(
                "rewards.OverlongPenalty needs the longest row allowed: set OverlongPenalty(limit=...) or give the "
                "batch its "
                "horizon, found neither"
            )
        buffer = self.buffer if self.buffer is not None else max(1, limit // 5)
        length = experience.lengths.to(experience.precision)
        soft = ((limit - buffer - length) / buffer).clamp(max=0)
        return torch.where(length > limit, -1.0, soft)


class KLPenalty(Reward):
    """Reward -coefficient * KL estimate between the behaviour policy and the reference, on each decision.

    This is the classical placement of the KL term: inside the reward, without gradient of its own, so that the policy
    gradient of k1 is that of KL(policy || reference).

    turn: restricts the penalty to that turn's decisions, from 0.
    """

    coefficient: float = 0.05
    estimator: ops.KLEstimator = "k1"
    turn: int | None = None

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"rollout_logp", "ref_logp"} | ({"turn"} if self.turn is not None else set()))

    def forward(self, experience: Experience) -> Tensor:
        clean = experience.zero_masked()
        penalty = -self.coefficient * ops.kl_estimate(self.estimator, clean.rollout_logp, clean.ref_logp)
        return penalty if self.turn is None else torch.where(experience.turn == self.turn, penalty, 0)


class ScaledReward(Reward):
    """Outcomes divided by their running standard deviation: R / std, or (R - mean) / std if centred.

    mean and std (n - 1 in its denominator) are those of all earlier batches; the current batch is added only after it
    was scaled, so that no row is scaled by its own statistics. Until two outcomes that differ have been seen, std is 1.
    The statistics are updated in training mode only. MOSS-RLHF adds the batch before it scales it. Source: reward
    scaling in PPO-max, arXiv:2307.04964.

    Raises:
        ExperienceError: the reward is per decision; the standard deviation is that of outcomes.
    """

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
        n, apart, before = len(reward), reward.mean() - mean, count.clone()
        count.add_(n)
        mean.add_(apart * n / count)
        squares.add_((reward - reward.mean()).square().sum() + apart.square() * before * n / count)


class ClippedReward(Reward):
    """The reward clipped to [-limit, limit]."""

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
