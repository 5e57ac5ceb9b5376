"""Lifelong pathfinding of many agents on a grid, and the same with a planned path to follow."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Generator, Tensor
from torch.nn.functional import pad

from polopt.worlds.control.grids import cells, cost_to_go, neighbours
from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld

# Row and column of an action: stay, up, down, left, right.
ACTIONS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


class Pathfinding(StepWorld):
    """Agents on a grid that each walk to a goal, and get a new one when they are there.

    A copy is an agent: of N copies each `agents` in a row share a grid, and see no more than their surroundings. With
    collisions "block" a move into a cell where an agent stands, or that two want, does not happen; with "priority"
    agents move one after another, by their number, into what is free then. The reward is 1 at a goal. Observations [N,
    3, 2 radius + 1, 2 radius + 1], around the agent: obstacles, other agents, and its goal, put on the edge if it lies
    beyond. `arrivals` has the goals that each agent has reached in the episode, [N]. Some 100,000 steps of an agent a
    second with 128 on one core.

    agents: that share a grid. size: cells of a side. density: of obstacles. radius: of what an agent sees.
    maps: grids that are drawn when the world is seeded, of which each episode gets one. Agents stay in its largest
        connected part, where all starts and goals are.
    """

    channels = 3

    def __init__(
        self,
        num_envs: int = 16,
        *,
        agents: int = 16,
        size: int = 16,
        density: float = 0.2,
        radius: int = 5,
        collisions: Literal["block", "priority"] = "block",
        maps: int = 16,
        horizon: int = 256,
        device: str = "cpu",
        **planner: Any,
    ) -> None:
        name = type(self).__name__
        if agents < 1 or num_envs % agents or not 0 <= density < 0.5 or min(size, radius, maps) < 1:
            raise ValueError(
                f"{name}: needs a number of copies that is a multiple of agents >= 1, density in [0, 0.5), and size, "
                f"radius and maps >= 1, found {num_envs}, {agents}, {density}, {size}, {radius} and {maps}"
            )
        if collisions not in ("block", "priority"):
            raise ValueError(f"{name}: collisions must be block or priority, found {collisions!r:.60}")
        if agents > (1 - density) * size * size / 4:
            raise ValueError(f"{name}: {agents} agents are too many for {size} x {size} cells; set size higher")
        self.agents, self.size, self.density, self.radius = agents, size, density, radius
        self.collisions, self.maps, self.worlds = collisions, maps, num_envs // agents
        side = 2 * radius + 1
        self.single_observation_space = Box(-1.0, 1.0, (self.channels, side, side), np.float32)
        self.single_action_space = Discrete(5)
        settings = {"agents": agents, "size": size, "density": density, "radius": radius, "collisions": collisions}
        super().__init__(num_envs, horizon, settings | {"maps": maps} | planner, device)
        self.moves = torch.tensor(ACTIONS, device=self.device)
        self.rows = torch.arange(num_envs, device=self.device)
        self.home = self.rows // agents
        self.place, self.goal = (torch.zeros(num_envs, 2, dtype=torch.int64, device=self.device) for _ in range(2))
        self.arrivals = torch.zeros(num_envs, device=self.device)
        self.blocked = torch.zeros(self.worlds, size, size, dtype=torch.bool, device=self.device)
        self.open, self.remoteness = torch.zeros_like(self.blocked), self.blocked.float()

    def begin(self, rows: Tensor) -> None:
        if len(rows) == self.num_envs and not self.time.any():
            self._draw_maps()
        worlds = rows[:: self.agents] // self.agents
        drawn = torch.randint(self.maps, (len(worlds),), generator=self.generator, device=self.device)
        self.blocked[worlds], self.open[worlds] = self.terrains[drawn], self.connected[drawn]
        self.remoteness[worlds] = self.mean_distances[drawn]
        chance = self.uniform(len(worlds), self.size**2).masked_fill(~self.open[worlds].flatten(1), -1.0)
        first = chance.topk(self.agents, 1).indices.flatten()
        self.place[rows] = torch.stack([first // self.size, first % self.size], 1)
        self.arrivals[rows] = 0.0
        self._draw_goals(rows)

    def _draw_maps(self) -> None:
        least = 2 * self.agents
        self.terrains, self.connected = (
            torch.zeros(self.maps, self.size, self.size, dtype=torch.bool, device=self.device) for _ in range(2)
        )
        self.mean_distances = torch.ones(self.maps, self.size, self.size, device=self.device)
        for i in range(self.maps):
            while True:
                wall = self.uniform(self.size, self.size) < self.density
                distance = all_distances(wall)
                reached = distance.isfinite().sum((1, 2)).masked_fill(wall.flatten(), 0)
                if int(reached.max()) >= least:
                    break
            self.terrains[i], self.connected[i] = wall, distance[int(reached.argmax())].isfinite()
            others = (reached - 1).clamp(min=1)
            mean = torch.where(distance.isfinite(), distance, 0).sum((1, 2)) / others
            self.mean_distances[i] = mean.view(self.size, self.size).clamp(min=1.0)

    def _draw_goals(self, rows: Tensor) -> None:
        """Draws a goal for the agents `rows` [M], in another cell than they are in."""
        allowed = self.open[self.home[rows]] & ~cells((self.size, self.size), self.place[rows])
        goal = self.uniform(len(rows), self.size**2).masked_fill(~allowed.flatten(1), -1.0).argmax(1)
        self.goal[rows] = torch.stack([goal // self.size, goal % self.size], 1)

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        move = self._blocking if self.collisions == "block" else self._in_turn
        self.place = move(self.place + self.moves[action])
        arrived = (self.place == self.goal).all(1)
        self.arrivals = self.arrivals + arrived
        if arrived.any():
            self._draw_goals(arrived.nonzero().flatten())
        return arrived.float(), torch.zeros_like(arrived)

    def _free(self, aim: Tensor) -> Tensor:
        """Returns which cells [N, 2] are on the grid and no obstacle."""
        inside = ((aim >= 0) & (aim < self.size)).all(1)
        at = aim.clamp(0, self.size - 1)
        return inside & ~self.blocked[self.home, at[:, 0], at[:, 1]]

    def _blocking(self, aim: Tensor) -> Tensor:
        """Returns the places after moves to `aim` [N, 2] that take a cell that nobody is in and nobody else wants."""
        aim = torch.where(self._free(aim)[:, None], aim, self.place)
        moving = (aim != self.place).any(1)
        count = torch.zeros(self.worlds, self.size, self.size, device=self.device)
        taken = count.index_put((self.home, self.place[:, 0], self.place[:, 1]), torch.ones_like(self.arrivals))
        wanted = count.index_put((self.home, aim[:, 0], aim[:, 1]), moving.float(), accumulate=True)
        at = (self.home, aim[:, 0], aim[:, 1])
        return torch.where((moving & (taken[at] == 0) & (wanted[at] < 2))[:, None], aim, self.place)

    def _in_turn(self, aim: Tensor) -> Tensor:
        """Returns the places after moves to `aim` [N, 2], of one agent after another."""
        free = self._free(aim).view(self.worlds, self.agents)
        aims, place = aim.view(self.worlds, self.agents, 2), self.place.view(self.worlds, self.agents, 2).clone()
        for i in range(self.agents):
            taken = (place == aims[:, i, None]).all(2).any(1)
            place[:, i] = torch.where((free[:, i] & ~taken)[:, None], aims[:, i], place[:, i])
        return place.flatten(0, 1)

    def _agents(self) -> Tensor:
        """Returns the cells with agents, [worlds, size, size]."""
        found = torch.zeros(self.worlds, self.size, self.size, device=self.device)
        found[self.home, self.place[:, 0], self.place[:, 1]] = 1.0
        return found

    def _window(self, grids: Tensor, fill: float) -> Tensor:
        """Returns what each agent sees of grids [N, size, size], or [worlds, size, size]."""
        wide = pad(grids, (self.radius,) * 4, value=fill)
        near = torch.arange(2 * self.radius + 1, device=self.device)
        row, column = (self.place[:, i, None] + near for i in (0, 1))
        of = (self.rows if len(grids) == self.num_envs else self.home)[:, None, None]
        return wide[of, row[:, :, None], column[:, None, :]]

    def _seen_agents(self) -> Tensor:
        seen = self._window(self._agents(), 0.0)
        seen[:, self.radius, self.radius] = 0.0
        return seen

    def observe(self) -> Tensor:
        toward = (self.goal - self.place).clamp(-self.radius, self.radius) + self.radius
        aim = cells((2 * self.radius + 1,) * 2, toward).float()
        return torch.stack([self._window(self.blocked.float(), 1.0), self._seen_agents(), aim], 1)


class PlannedPathfinding(Pathfinding):
    """`Pathfinding` in which each agent plans a path anew at every step, alone, and is rewarded for following it.

    The path is one of least cost, where to enter a cell c costs

        static(c) + dynamic(c),    static(c) = max_x d(x) / d(c)

    with d(c) the mean distance from c to all cells that can be reached from it, and dynamic(c) the number of steps at
    which the agent has seen another agent in c since its goal was given. Observations [N, 2, 2 radius + 1, 2 radius +
    1]: obstacles -1 and cells of the path 1, and other agents. The reward is `reward` where an agent has moved to the
    next cell of the path that it had; reaching a goal gives none. Some 8,000 steps of an agent a second with 128.

    static, dynamic: whether these costs are there; without static a cell costs 1. Source: arXiv:2310.01207.
    """

    channels = 2

    def __init__(
        self,
        num_envs: int = 16,
        *,
        static: bool = True,
        dynamic: bool = True,
        reward: float = 0.01,
        **settings: Any,
    ) -> None:
        super().__init__(num_envs, **settings, static=static, dynamic=dynamic, reward=reward)
        self.static, self.dynamic, self.reward = static, dynamic, reward
        self.counts = torch.zeros(num_envs, self.size, self.size, device=self.device)
        self.path = torch.zeros_like(self.counts, dtype=torch.bool)
        self.following = torch.zeros_like(self.place)

    def _draw_goals(self, rows: Tensor) -> None:
        super()._draw_goals(rows)
        self.counts[rows] = 0.0

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        following = self.following
        _, terminated = super().advance(action)
        return self.reward * (self.place == following).all(1).float(), terminated

    def observe(self) -> Tensor:
        self._look_around()
        self._plan()
        terrain = -self._window(self.blocked.float(), 1.0) + self._window(self.path.float(), 0.0)
        return torch.stack([terrain, self._seen_agents()], 1)

    def _look_around(self) -> None:
        """Counts the agents that each agent sees. A world whose observations are read twice in a step counts once."""
        key = (self.time.clone(), self.place.clone())
        last = getattr(self, "_counted", None)
        fresh = (
            torch.ones_like(self.arrivals, dtype=torch.bool)
            if last is None
            else (key[0] != last[0]) | (key[1] != last[1]).any(1)
        )
        self._counted = key
        others = self._agents()[self.home]
        others[self.rows, self.place[:, 0], self.place[:, 1]] = 0.0
        row = torch.arange(self.size, device=self.device)
        near = [(row - self.place[:, i, None]).abs() <= self.radius for i in (0, 1)]
        self.counts += others * (near[0][:, :, None] & near[1][:, None, :]) * fresh[:, None, None]

    def costs(self) -> Tensor:
        """Returns the cost of entering each cell, [N, size, size], infinite where it is blocked."""
        cost = torch.ones_like(self.counts)
        if self.static:
            far = self.remoteness.masked_fill(self.blocked, 0.0)
            cost = (far.amax((1, 2), keepdim=True) / self.remoteness)[self.home]
        cost = cost + self.counts if self.dynamic else cost
        return cost.masked_fill(self.blocked[self.home], math.inf)

    def _plan(self) -> None:
        """Plans the path of each agent, which is followed until it leaves what the agent sees."""
        cost = self.costs()
        worth = neighbours(cost_to_go(cost, cells((self.size, self.size), self.goal)) + cost)  # [4, N, H, W]
        at, self.path = self.place.clone(), cells((self.size, self.size), self.place)
        step = self.moves[[2, 1, 4, 3]]  # in the order of `grids.MOVES`
        for i in range(2 * self.size**2):
            go = (at != self.goal).any(1) & ((at - self.place).abs() <= self.radius).all(1)
            if i and not go.any():
                break
            best = worth[:, self.rows, at[:, 0], at[:, 1]].argmin(0)
            at = torch.where(go[:, None], at + step[best], at)
            self.path[self.rows, at[:, 0], at[:, 1]] = True
            if i == 0:
                self.following = at


def all_distances(wall: Tensor) -> Tensor:
    """Returns the distance from each cell to each cell, [H W, H, W], of a grid [H, W] bool; infinite if there is no
    way."""
    H, W = wall.shape
    start = torch.eye(H * W, dtype=torch.bool, device=wall.device).view(H * W, H, W)
    cost = torch.where(wall, math.inf, 1.0).expand(H * W, H, W)
    return cost_to_go(cost, start).masked_fill(wall, math.inf)


class FollowPath(ControlRule):
    """The first move of the path that the environment has planned, and a random one with probability `noise`."""

    noise: float = 0.0

    world = PlannedPathfinding

    def prepare(self, world: PlannedPathfinding) -> ControlRule:
        """Returns the rule for an environment, whose plans it reads."""
        ready = self.but()
        object.__setattr__(ready, "planned", [world])  # in a list: no part of the rule's state
        return ready

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        found: list[PlannedPathfinding] = getattr(self, "planned", [])
        if not found or len(observation) != found[0].num_envs:
            raise ValueError("worlds.control.FollowPath: prepare it for the environment that it plays")
        step = found[0].following - found[0].place
        action = (step[:, None] == found[0].moves).all(2).float().argmax(1)
        random = torch.randint(5, action.shape, generator=generator).to(action.device)
        chance = torch.rand(action.shape, generator=generator).to(action.device)
        return torch.where(chance < self.noise, random, action)
