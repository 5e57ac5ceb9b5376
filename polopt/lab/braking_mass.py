"""A mass on a line that should come to rest at a target, whose thrust must turn round on the way."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.stepped import SteppedWorld
from polopt.policies.network import NetworkPolicy
from polopt.policies.open_loop import OpenLoop
from polopt.sampling import PolicyInput


class BrakingMass(SteppedWorld):
    """Position x and velocity v; a step adds 0.3 of the action to 0.9 v, and v / 4 to x. The reward is 1 - |x| / 2,
    at least 0. It begins at rest at an x of [-2, 2]."""

    observations, dimensions, horizon = 2, 1, 40

    def start(self, count: int, generator: Generator) -> Tensor:
        place = 4 * torch.rand(count, 1, generator=generator) - 2
        return torch.cat([place, torch.zeros_like(place)], 1)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        velocity = 0.9 * state[:, 1:] + 0.3 * action
        place = state[:, :1] + velocity / 4
        reward = (1 - place[:, 0].abs() / 2).clamp(min=0)
        return torch.cat([place, velocity], 1), reward, torch.zeros(len(state), dtype=torch.bool)


class RepeatedThrust(BrakingMass):
    """The same with each action taken so many times, whose rewards are summed."""

    horizon = 5

    def __init__(self, times: int) -> None:
        self.times = times

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total = torch.zeros(len(state))
        for _ in range(self.times):
            state, reward, never = super().step(state, action)
            total += reward
        return state, total, never


@torch.no_grad()
def returns_at(
    world: SteppedWorld, policy: NetworkPolicy, lengths: tuple[int, ...], given: PolicyInput | None, episodes: int = 128
) -> list[float]:
    """Returns the mean return of the policy's most likely actions by length of its open-loop sequences."""
    found = list[float]()
    for length in lengths:
        draw = Generator().manual_seed(0)
        state, plan = world.start(episodes, draw), OpenLoop(episodes, length)
        total = torch.zeros(episodes)
        read = torch.zeros(episodes, 0) if given is None else given.draw(episodes, given.width(world.space), draw)
        for _ in range(world.horizon):
            seen = world.seen(state)
            action = plan.act(policy, torch.cat([seen, read], 1), draw, greedy=True).action
            state, reward, _ = world.step(state, action)
            total += reward
            read = read if given is None else given.after(read, seen, action, draw, policy)
        found.append(float(total.mean()))
    return found
