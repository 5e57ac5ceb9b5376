"""Demonstrations of reaching in a plane: from any start to any goal, on curves that are bent more or less."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Generator, Tensor

from polopt.worlds.control.world import StepWorld

POINTS = 20


def contexts(count: int, draw: Generator) -> Tensor:
    """Returns where reaches begin and end, uniform on [-1, 1]^4, and their bend, uniform on [-1, 1]: [count, 5]."""
    return 2 * torch.rand(count, 5, generator=draw) - 1


def curves(context: Tensor, *, sideways: bool = False) -> Tensor:
    """Returns the points of reaches, [N, POINTS, 2]: of minimum jerk, and half the bend times their length more in the
    middle, along the way or sideways."""
    begin, end, bend = context[:, None, :2], context[:, None, 2:4], context[:, None, 4:]
    time = (torch.arange(1, POINTS + 1, dtype=context.dtype) / POINTS)[:, None]
    along = 10 * time**3 - 15 * time**4 + 6 * time**5
    way = end - begin
    bent = torch.stack([-way[..., 1], way[..., 0]], -1) if sideways else way
    return begin + along * way + 0.5 * bend * (math.pi * along).sin() * bent


def demonstrations(count: int, noise: float, seed: int, *, sideways: bool = False) -> dict[str, Tensor]:
    """Returns a log of reaches, whose action is all of their points, with a normal error of each coordinate."""
    draw = Generator().manual_seed(seed)
    seen = contexts(count, draw)
    points = curves(seen, sideways=sideways)
    once = torch.ones(count, dtype=torch.bool)
    return {
        "observation": seen,
        "next_observation": seen,
        "action": (points + noise * torch.randn(points.shape, generator=draw)).flatten(1),
        "reward": torch.zeros(count),
        "terminated": once,
        "truncated": ~once,
        "following": torch.zeros(count, dtype=torch.int64),
    }


class Reach(StepWorld):
    """A point in a square that is to come within 0.5 of a target: 1 when it does, which ends the episode.

    An observation is the point and the target, both uniform on [-5, 5]^2 at first; an action is a displacement, of at
    most 1 in each coordinate.
    """

    single_observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    single_action_space = Box(-1, 1, (2,), np.float32)

    def __init__(self, *, num_envs: int = 1, horizon: int = 20, device: str = "cpu") -> None:
        super().__init__(num_envs, horizon, {}, device)
        self.point, self.target = torch.zeros(2, num_envs, 2, device=self.device)

    def begin(self, rows: Tensor) -> None:
        self.point[rows], self.target[rows] = 10 * self.uniform(2, len(rows), 2) - 5

    def observe(self) -> Tensor:
        return torch.cat([self.point, self.target], 1)

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        self.point = (self.point + action.clamp(-1, 1)).clamp(-5, 5)
        there = (self.point - self.target).norm(dim=1) < 0.5
        return there.float(), there
