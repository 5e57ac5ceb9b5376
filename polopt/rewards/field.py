"""A number of the batch as a reward."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.rewards.parts import Reward


class FieldReward(Reward):
    """The reward `extras[name]`, [B], a number that the world or the loop recorded of each row; a world's signal x is
    `signal_x`."""

    name: str

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        noted = torch.as_tensor(experience.extras[self.name], device=experience.device)
        return noted if noted.is_floating_point() else noted.to(experience.precision)
