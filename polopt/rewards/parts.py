"""Reward parts: `reward(experience) -> [B] or [B, T]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience, ExperienceError
from polopt.part import Part
from polopt.rewards.marks import Mark


class Reward(Part):
    """`reward(experience) -> [B]` outcome or `[B, T]` per decision, without gradient.

    compares: whether a row's reward depends on other rows of the batch too, which it must then see whole.
    """

    compares: ClassVar[bool] = False

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class Outcome(Reward):
    """scale * outcome + shift: what the world paid. Scale 2 and shift -1 turn right/wrong 1/0 into +1/-1."""

    scale: float = 1.0
    shift: float = 0.0

    needs = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome * self.scale + self.shift


class Overlong(Reward):
    """Soft punishment of length, with L = limit and c = buffer:

        0 if |y| <= L - c;    (L - c - |y|) / c in between;    -1 beyond L.

    limit None takes the batch's horizon; buffer None is a fifth of the limit, the paper's 4,096 of 20,480.
    Source: DAPO, arXiv:2503.14476, equation 13.

    Raises:
        ExperienceError: limit is None and the batch has no horizon.
    """

    limit: int | None = None
    buffer: int | None = None

    def setup(self) -> None:
        if self.buffer is not None and self.buffer < 1:
            raise ValueError(f"rewards.Overlong: buffer must be >= 1, found {self.buffer}")

    def forward(self, experience: Experience) -> Tensor:
        limit = self.limit if self.limit is not None else experience.horizon
        if limit is None:
            raise ExperienceError(
                "rewards.Overlong needs the longest row allowed: set Overlong(limit=...) or give the batch its "
                "horizon, found neither"
            )
        buffer = self.buffer if self.buffer is not None else max(1, limit // 5)
        length = experience.lengths.to(torch.get_default_dtype())
        soft = ((limit - buffer - length) / buffer).clamp(max=0)
        return torch.where(length > limit, -1.0, soft)


class KLPenalty(Reward):
    """-coefficient * KL estimate between the behaviour policy and the reference, on each decision.

    The classical placement of the KL term: inside the reward, without gradient of its own, so that the policy
    gradient of k1 is that of KL(policy || reference).
    """

    coefficient: float = 0.05
    estimator: ops.KLEstimator = "k1"

    needs = frozenset({"logp", "ref_logp"})

    def forward(self, experience: Experience) -> Tensor:
        clean = experience.blanked()
        return -self.coefficient * ops.kl_estimate(self.estimator, clean.logp, clean.ref_logp)


class Scaled(Reward):
    """Outcomes in units of their own spread so far: R / std, or (R - mean) / std if centred.

    mean and std (n - 1 in its denominator) are those of all earlier batches; the current batch enters only after it
    was scaled, so that no row is measured by itself. Until two outcomes that differ have been seen, std is 1. Moves in
    training mode only. MOSS-RLHF adds the batch before it scales it.

    Source: reward scaling in PPO-max, arXiv:2307.04964.

    Raises:
        ExperienceError: the reward is one for each decision; a spread is that of outcomes.
    """

    reward: Reward = Outcome()
    centred: bool = False

    def setup(self) -> None:
        for name in ("count", "mean", "squares"):  # squares: summed, of the deviations from the mean
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def forward(self, experience: Experience) -> Tensor:
        reward = self.reward(experience)
        if reward.ndim != 1:
            raise ExperienceError(
                f"rewards.Scaled needs one reward for each row, [{len(reward)}], found {list(reward.shape)}; scale the "
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


class Clipped(Reward):
    """The reward within -limit and limit."""

    reward: Reward
    limit: float

    def setup(self) -> None:
        if self.limit <= 0:
            raise ValueError(f"rewards.Clipped: limit must be > 0, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        return self.reward(experience).clamp(-self.limit, self.limit)


class Gated(Reward):
    """The reward where `when` holds, 0 elsewhere."""

    reward: Reward
    when: Mark

    def forward(self, experience: Experience) -> Tensor:
        reward, when = self.reward(experience), self.when(experience)
        return torch.where(when if reward.ndim == 1 else when[:, None], reward, 0)


class Sum(Reward):
    """Weighted sum of rewards. Outcomes [B] land on the last decision if any term is per decision.

    weights: one per term; none given means 1 each.
    """

    terms: Sequence[Reward]
    weights: Sequence[float] = ()

    def setup(self) -> None:
        if not len(self.terms):
            raise ValueError("rewards.Sum needs at least one term, found none")
        if self.weights and len(self.weights) != len(self.terms):
            raise ValueError(f"rewards.Sum: {len(self.terms)} terms need as many weights, found {len(self.weights)}")

    def forward(self, experience: Experience) -> Tensor:
        values = [term(experience) for term in self.terms]
        if any(v.ndim == 2 for v in values):
            values = [ops.per_decision_reward(v, experience.mask) for v in values]
        weights = self.weights or [1.0] * len(values)
        return torch.stack([w * v for w, v in zip(weights, values, strict=True)]).sum(0)
