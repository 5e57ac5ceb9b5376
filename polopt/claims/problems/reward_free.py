"""Logged moves of a point in a square, without rewards, and eight goals that are given afterwards."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module

from polopt.lab.transitions import Log
from polopt.methods.zero_shot_rl import task_of_rewards
from polopt.policies.network import NetworkPolicy

# Half the square's side, the longest move, and the moves of an episode.
HALF, MOVE, STEPS = 3.0, 0.5, 30
ANGLES = torch.arange(8) * torch.pi / 4
GOALS = 2 * torch.stack([ANGLES.cos(), ANGLES.sin()], -1)


def moves(count: int, seed: int, *, along: float = 0.0) -> Log:
    """Returns single moves from places all over the square; observations are places / HALF.

    along: share of each action that is of the direction around the middle, anticlockwise; the rest is random.
    """
    draw = torch.Generator().manual_seed(seed)
    place = HALF * (2 * torch.rand(count, 2, generator=draw) - 1)
    around = torch.nn.functional.normalize(torch.stack([-place[:, 1], place[:, 0]], 1), dim=1)
    action = along * around + (1 - along) * (2 * torch.rand(count, 2, generator=draw) - 1)
    after = (place + MOVE * action).clamp(-HALF, HALF)
    never = torch.zeros(count, dtype=torch.bool)
    return {
        "observation": place / HALF,
        "next_observation": after / HALF,
        "action": action,
        "reward": torch.zeros(count),
        "terminated": never,
        "truncated": never,
    }


def reward(place: Tensor, goal: Tensor) -> Tensor:
    """Returns exp(-|place - goal|^2)."""
    return (-(place - goal).square().sum(-1)).exp()


@torch.no_grad()
def mean_reward(policy: NetworkPolicy, backward: Module, log: Log, seed: int, *, tasks: Tensor | None = None) -> float:
    """Returns the mean reward of a step over the goals, from 32 places each. tasks: in place of those of the goals'
    rewards in the log, [8, d]."""
    draw, found = torch.Generator().manual_seed(seed), []
    for i, goal in enumerate(GOALS):
        seen = log["next_observation"]
        task = task_of_rewards(backward, seen, reward(HALF * seen, goal)) if tasks is None else tasks[i]
        place = HALF * (2 * torch.rand(32, 2, generator=draw) - 1)
        for _ in range(STEPS):
            read = torch.cat([place / HALF, task.expand(32, -1)], -1)
            place = (place + MOVE * policy.act(read, draw, greedy=True).action).clamp(-HALF, HALF)
            found.append(reward(place, goal).mean())
    return float(torch.stack(found).mean())
