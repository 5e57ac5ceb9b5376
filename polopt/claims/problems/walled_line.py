"""A line with an aim at either end, of which the better one stands behind a wall that a simulator does not have."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.stepped import SteppedWorld
from polopt.lab.transitions import Log
from polopt.policies.network import NetworkPolicy

RIGHT, LEFT = 1.0, 0.8
WALL = 0.4


class WalledLine(SteppedWorld):
    """A step moves by 0.4 of the action and noise of 0.03. The episode ends at 1, with a reward of 1, and at -1,
    with 0.8; a wall at 0.4 holds what comes from the left. It begins within 0.2 of 0.

    wall: whether it is there, as in reality.
    """

    observations, dimensions, horizon = 1, 1, 8

    def __init__(self, *, wall: bool, seed: int) -> None:
        self.wall, self.noise = wall, Generator().manual_seed(seed)

    def start(self, count: int, generator: Generator) -> Tensor:
        return 0.4 * torch.rand(count, 1, generator=generator) - 0.2

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after = state + 0.4 * action + 0.03 * torch.randn(state.shape, generator=self.noise)
        if self.wall:
            after = torch.where(state <= WALL, after.clamp(max=WALL), after)
        right, left = after[:, 0] >= 1, after[:, 0] <= -1
        return after, RIGHT * right.float() + LEFT * left.float(), right | left


def real_log(count: int, seed: int) -> Log:
    """Returns real transitions of uniform actions, of `count` episodes of two steps, none of which comes near -1."""
    world, draw = WalledLine(wall=True, seed=seed), Generator().manual_seed(seed)
    state, found = world.start(count, draw), list[dict[str, Tensor]]()
    over = torch.zeros(count, dtype=torch.bool)
    for step in range(2):
        action = 2 * torch.rand(count, 1, generator=draw) - 1
        after, reward, terminated = world.step(state, action)
        columns = {"observation": state, "action": action, "next_observation": after, "reward": reward}
        columns |= {"terminated": terminated, "truncated": torch.full_like(terminated, step == 1) & ~terminated}
        found.append({name: column[~over] for name, column in columns.items()})
        state, over = after, over | terminated
    joined = {name: torch.cat([columns[name] for columns in found]) for name in found[0]}
    return joined | {"following": torch.zeros(len(joined["reward"]), dtype=torch.int64)}


@torch.no_grad()
def return_of(policy: NetworkPolicy, *, wall: bool, seed: int, episodes: int = 200) -> float:
    """Returns the mean return of a policy's most likely actions."""
    world, draw = WalledLine(wall=wall, seed=seed), Generator().manual_seed(seed)
    state, total = world.start(episodes, draw), torch.zeros(episodes)
    alive = torch.ones(episodes, dtype=torch.bool)
    for _ in range(world.horizon):
        state, reward, terminated = world.step(state, policy.act(state, draw, greedy=True).action)
        total += reward * alive
        alive &= ~terminated
    return float(total.mean())
