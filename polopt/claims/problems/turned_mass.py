"""A mass on the ground that is pushed along two axes of its own towards a goal, in worlds that are turned."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.stepped import SteppedWorld

# Vectors of an observation: gravity, the way to the goal, the velocity, and the two axes.
LAYOUT = {"limbs": 1, "vectors": 5, "scalars": 0, "directions": (0, 1), "axes": (3, 4)}
DISTANCE = 2.0


class TurnedMass(SteppedWorld):
    """The goal is 2 away in a direction of `sector` (low, high), in radians; the first axis is within 1/2 of it. The
    reward of a step is minus the distance. A state is [way to the goal, velocity, first axis's angle]."""

    observations, dimensions, horizon = 15, 2, 20

    def __init__(self, sector: tuple[float, float]) -> None:
        self.sector = sector

    def start(self, count: int, generator: Generator) -> Tensor:
        low, high = self.sector
        goal = low + (high - low) * torch.rand(count, generator=generator)
        heading = goal + torch.rand(count, generator=generator) - 0.5
        way = DISTANCE * torch.stack([goal.cos(), goal.sin()], 1)
        return torch.cat([way, torch.zeros(count, 2), heading[:, None]], 1)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        way, velocity, heading = state[:, :2], state[:, 2:4], state[:, 4]
        first, second = axes(heading)
        velocity = 0.7 * velocity + 0.15 * (action[:, :1] * first + action[:, 1:] * second)
        way = way - velocity
        return torch.cat([way, velocity, heading[:, None]], 1), -way.norm(dim=1), torch.zeros(len(state)) > 0

    def seen(self, state: Tensor) -> Tensor:
        gravity = torch.tensor([0.0, 0.0, -1.0]).expand(len(state), 3)
        flat = [state[:, :2], state[:, 2:4], *axes(state[:, 4])]
        return torch.cat([gravity, *(torch.nn.functional.pad(vector, (0, 1)) for vector in flat)], 1)


def axes(heading: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mass's axes, [N, 2] each."""
    return torch.stack([heading.cos(), heading.sin()], 1), torch.stack([-heading.sin(), heading.cos()], 1)
