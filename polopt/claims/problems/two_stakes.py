"""Decisions of two kinds, in which five times as much is at stake in the rarer one."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.stepped import SteppedWorld
from polopt.lab.transitions import Log
from polopt.policies.network import NetworkPolicy

STAKES = (2.0, 10.0)
WELL, BEST = (-0.4, 0.2, 1.0), (0.6, 0.16, 1.6)  # centre, width and height of the two good ranges of actions


class TwoStakes(SteppedWorld):
    """An observation is (x, kind), x uniform on [-1, 1]; kind 1 has the larger stake, and is rarer by as much. An
    episode is one decision, with reward stake * max_k height_k exp(-((a - c_k(x)) / width_k)^2 / 2) / 1.6, in which
    both centres c_k go up and down with x by 0.1."""

    observations, dimensions, horizon = 2, 1, 1

    def start(self, count: int, generator: Generator) -> Tensor:
        x = 2 * torch.rand(count, generator=generator) - 1
        rare = torch.rand(count, generator=generator) < STAKES[0] / sum(STAKES)
        return torch.stack([x, rare.float()], 1)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        stake = torch.where(state[:, 1] > 0, STAKES[1], STAKES[0])
        return state, stake * share(state, action[:, 0]), torch.ones(len(state), dtype=torch.bool)


def share(state: Tensor, action: Tensor) -> Tensor:
    """Returns the rewards [N] of actions [N], as shares of the largest in each state [N, 2]."""
    middle = 0.1 * (3 * state[:, 0]).sin()
    found = [h * (-((action - c - middle) / w).square() / 2).exp() for c, w, h in (WELL, BEST)]
    return torch.maximum(*found) / BEST[2]


def uniform_log(count: int, seed: int) -> Log:
    """Returns so many decisions with uniform actions."""
    world, draw = TwoStakes(), Generator().manual_seed(seed)
    state = world.start(count, draw)
    action = 2 * torch.rand(count, 1, generator=draw) - 1
    after, reward, terminated = world.step(state, action)
    return {
        "observation": state,
        "next_observation": after,
        "action": action,
        "reward": reward,
        "terminated": terminated,
        "truncated": ~terminated,
        "following": torch.zeros(count, dtype=torch.int64),
    }


@torch.no_grad()
def share_of(policy: NetworkPolicy, kind: int) -> float:
    """Returns the mean share of the largest reward that most likely actions get in states of a kind."""
    state = torch.stack([torch.linspace(-1, 1, 200), torch.full((200,), float(kind))], 1)
    action = policy.act(state, Generator(), greedy=True).action[:, 0].clamp(-1, 1)
    return float(share(state, action).mean())
