"""These programs measure what the paper of Follower claims."""

import torch
from torch import Tensor

from polopt.claim import Replace, mutation
from polopt.lab.effects import More, effect
from polopt.worlds.control import ControlRule, FollowPath, PlannedPathfinding


def throughput(world: PlannedPathfinding, rule: ControlRule, seed: int, steps: int = 100) -> float:
    """Returns the goals that the agents of a grid reach in a step, a mean over grids and steps."""
    seen, _ = world.reset(seed=seed)
    draw = torch.Generator().manual_seed(seed)
    ready = rule.prepare(world)
    for _ in range(steps):
        seen, *_ = world.step(ready(seen.flatten(1), draw))
    return float(world.arrivals.sum()) / (steps * world.worlds)


@effect(
    "Agents that avoid where they have seen others reach more goals than those that take shortest paths.",
    kind="part",
    method=lambda: True,
    controls={"shortest paths": lambda: False},
    criteria=[More("goals a step", times=1.5)],
    seeds=5,
    cost="slow",
    note="20 agents follow their plans on two grids of 16 x 16 cells for 100 steps, and one move in ten is random.",
)
def avoids_others(dynamic: bool, *, seed: int) -> dict[str, float]:
    world = PlannedPathfinding(40, agents=20, static=False, dynamic=dynamic, maps=2)
    return {"goals a step": throughput(world, FollowPath(noise=0.1), 41 + seed)}


@mutation("Agents are drawn to where they have seen others.", kills=avoids_others)
def drawn_to_others(replace: Replace) -> None:
    right = PlannedPathfinding.costs

    def costs(self: PlannedPathfinding) -> Tensor:
        plain = right(self)
        return plain if not self.dynamic else (plain - self.counts) / (1 + self.counts)

    replace(PlannedPathfinding, "costs", costs)
