"""Rewards that the environment or the training loop recorded."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.rewards.parts import Reward


class EnvironmentReward(Reward):
    """The environment's own `reward` of the batch, [B] or [B, T]."""

    tags = frozenset({"reward_source=task"})
    reads = frozenset({"reward"})

    def forward(self, experience: Experience) -> Tensor:
        reward = experience.reward
        return reward if reward.ndim == 1 else torch.where(experience.mask, reward, 0)


class OutcomeReward(Reward):
    """Reward scale * outcome + shift, of the environment's outcome. Scale 2 and shift -1 map right/wrong 1/0 to
    +1/-1."""

    tags = frozenset({"reward_source=task"})

    scale: float = 1.0
    shift: float = 0.0

    reads = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome * self.scale + self.shift


class FieldReward(Reward):
    """The reward `extras[name]`, [B], a number that the environment or the loop recorded of each row; an environment's
    signal x is `signal_x`."""

    name: str

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        noted = torch.as_tensor(experience.extras[self.name], device=experience.device)
        return noted if noted.is_floating_point() else noted.to(experience.precision)
