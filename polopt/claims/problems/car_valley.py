"""A car with a weak motor in a valley, which must swing to come out of it."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.stepped import SteppedWorld

GOAL, POWER, GRAVITY, HELD = 0.45, 0.0015, 0.0025, 4


class CarValley(SteppedWorld):
    """gymnasium's MountainCarContinuous-v0, with rewards a hundredth as large, and an action that is held for 4 steps:

        v <- clip(v + 0.0015 a - 0.0025 cos(3 x), -0.07, 0.07),  x <- clip(x + v, -1.2, 0.6)
        reward 1 where x >= 0.45 and v >= 0, which ends the episode, less 0.001 a^2

    A wall stops the car at -1.2. Episodes begin at rest in [-0.6, -0.4]; states are (x, v), and observations (x, 10 v).
    """

    observations, dimensions, horizon = 2, 1, 100

    def start(self, count: int, generator: Generator) -> Tensor:
        place = -0.6 + 0.2 * torch.rand(count, generator=generator)
        return torch.stack([place, torch.zeros(count)], 1)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (x, v), force = state.T, action[:, 0].clamp(-1, 1)
        over, reward = torch.zeros(len(state), dtype=torch.bool), torch.zeros(len(state))
        for _ in range(HELD):
            further = (v + POWER * force - GRAVITY * (3 * x).cos()).clamp(-0.07, 0.07)
            place = (x + further).clamp(-1.2, 0.6)
            further = torch.where((place <= -1.2) & (further < 0), 0, further)
            reached = (place >= GOAL) & (further >= 0)
            reward += torch.where(over, 0, reached.float() - 0.001 * force.square())
            x, v = torch.where(over, x, place), torch.where(over, v, further)
            over |= reached
        return torch.stack([x, v], 1), reward, over

    def seen(self, state: Tensor) -> Tensor:
        return state * torch.tensor([1.0, 10.0])
