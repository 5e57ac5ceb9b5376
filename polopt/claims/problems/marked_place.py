"""A point in the plane that should come to a marked place, of whose rewards demonstrations alone tell."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.stepped import SteppedWorld
from polopt.lab.transitions import Log

PLACE, RADIUS, STEP = (0.6, 0.0), 0.1, 0.1


class MarkedPlace(SteppedWorld):
    """A step moves by a tenth of the action. The reward is 1 within 0.1 of (0.6, 0), and nothing ends there. It begins
    within 0.1 of (0, 0)."""

    observations, dimensions, horizon = 2, 2, 20

    def start(self, count: int, generator: Generator) -> Tensor:
        return 0.2 * torch.rand(count, 2, generator=generator) - 0.1

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after = (state + STEP * action).clamp(-1.5, 1.5)
        return after, reached(after).float(), torch.zeros(len(state), dtype=torch.bool)


def reached(state: Tensor) -> Tensor:
    """Tests whether states [..., 2] are at the place."""
    return (state - torch.tensor(PLACE)).norm(dim=-1) <= RADIUS


def demonstrations(episodes: int, seed: int) -> Log:
    """Returns transitions of episodes that go to the place, with noise of 0.3 on each action, and stay."""
    world, draw = MarkedPlace(), Generator().manual_seed(seed)
    state, found = world.start(episodes, draw), list[dict[str, Tensor]]()
    for step in range(world.horizon):
        way = (torch.tensor(PLACE) - state) / STEP
        action = (way + 0.3 * torch.randn(state.shape, generator=draw)).clamp(-1, 1)
        after, reward, never = world.step(state, action)
        columns = {"observation": state, "action": action, "next_observation": after, "reward": reward}
        last = torch.full_like(never, step == world.horizon - 1)
        found.append(columns | {"terminated": never, "truncated": last})
        state = after
    joined = {name: torch.cat([columns[name] for columns in found]) for name in found[0]}
    return joined | {"following": torch.zeros(len(joined["reward"]), dtype=torch.int64)}
