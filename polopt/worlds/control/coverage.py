"""The exploration of an unknown terrain by a robot with a lidar, and rules that go to the frontier of what is known."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Generator, Tensor
from torch.nn.functional import avg_pool2d, pad

from polopt.worlds.control.grids import MOVES, cells, cost_to_go, neighbours
from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld

# What a cell of an observation holds.
UNKNOWN, FREE, ROBOT, OBSTACLE = 0.0, 0.3, 0.5, 1.0
# Points of a ray that are rounded to cells.
RESOLUTION = 200


class Coverage(StepWorld):
    """A square terrain of `size` cells a side with blocks as obstacles, which a robot explores from its corner (0, 0).

    The action is a move: row + 1, row - 1, column + 1, column - 1. After it `rays` rays of length `reach` show the
    cells that they cross, up to the first obstacle. Observations [N, size, size] are 0 where nothing is known, 0.3 for
    free cells, 1 for obstacles and 0.5 for the robot. The reward is the number of cells that became known, less 0.2;
    in its place `bonus` where more than `goal` of what can be seen is known, and -`bonus` where a move led into an
    obstacle or off the terrain. Both terminate the episode; `horizon` steps end it, too. Some 40,000 steps a second
    with 256 copies on one core.

    obstacles: blocks of 2 by 2 cells, at random places at least one cell from the edge, which may overlap.
    view: cells that are seen on each side of the robot, which is then in the middle of an observation [N, 2 view + 1,
        2 view + 1], with obstacles off the terrain; None is the terrain as it lies.
    maps: terrains that are drawn when the world is seeded, of which each episode gets one.

    What can be seen are the cells that the robot can reach and the obstacles beside them; the paper's program counts
    all, so that enclosed cells can make the goal unreachable. It marks the robot 0.6 at first and 0.5 later, and ends
    an episode one step later. Source: arXiv:2107.09996.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        size: int = 21,
        obstacles: int = 12,
        reach: float = 6.0,
        rays: int = 32,
        goal: float = 0.95,
        bonus: float = 400.0,
        view: int | None = None,
        maps: int = 256,
        horizon: int = 400,
        device: str = "cpu",
    ) -> None:
        if (
            size < 5
            or obstacles < 0
            or reach < 1
            or rays < 4
            or rays % 4
            or not 0 < goal < 1
            or min(maps, view or 1) < 1
        ):
            raise ValueError(
                "Coverage: needs size >= 5, obstacles >= 0, reach >= 1, rays a multiple of 4, goal in (0, 1), maps and "
                f"view >= 1, found {size}, {obstacles}, {reach}, {rays}, {goal}, {maps} and {view}"
            )
        self.size, self.obstacles, self.goal, self.bonus, self.maps = size, obstacles, goal, bonus, maps
        self.view, side = view, size if view is None else 2 * view + 1
        self.single_observation_space = Box(0.0, 1.0, (side, side), np.float32)
        self.single_action_space = Discrete(4)
        settings = {"size": size, "obstacles": obstacles, "reach": reach, "rays": rays, "goal": goal, "bonus": bonus}
        super().__init__(num_envs, horizon, settings | {"maps": maps, "view": view}, device)
        self.path = ray_cells(reach, rays).to(self.device)
        self.moves = torch.tensor(MOVES, device=self.device)
        self.rows = torch.arange(num_envs, device=self.device)
        self.place = torch.zeros(num_envs, 2, dtype=torch.int64, device=self.device)
        self.blocked, self.known, self.coverable = (
            torch.zeros(num_envs, size, size, dtype=torch.bool, device=self.device) for _ in range(3)
        )

    def begin(self, rows: Tensor) -> None:
        if len(rows) == self.num_envs and not self.time.any():
            self._draw_maps()
        drawn = torch.randint(self.maps, (len(rows),), generator=self.generator, device=self.device)
        self.blocked[rows], self.coverable[rows] = self.terrains[drawn], self.visible[drawn]
        self.place[rows], self.known[rows] = 0, False
        self._scan(rows)

    def _draw_maps(self) -> None:
        shape = (self.maps, self.obstacles, 2)
        corner = torch.randint(1, self.size - 2, shape, generator=self.generator, device=self.device)
        self.terrains = torch.zeros(self.maps, self.size, self.size, dtype=torch.bool, device=self.device)
        number = torch.arange(self.maps, device=self.device)[:, None].expand(shape[:2])
        for row in (0, 1):
            for column in (0, 1):
                self.terrains[number, corner[..., 0] + row, corner[..., 1] + column] = True
        start = cells((self.size, self.size), torch.zeros(self.maps, 2, dtype=torch.int64, device=self.device))
        reached = cost_to_go(torch.where(self.terrains, math.inf, 1.0), start).isfinite()
        self.visible = reached | (self.terrains & (neighbours(reached.float(), 0.0).amax(0) > 0))

    def _scan(self, rows: Tensor) -> None:
        """Shows the copies `rows` [M] what their rays cross."""
        at = self.place[rows][:, None, None] + self.path  # [M, rays, L, 2]
        inside = ((at >= 0) & (at < self.size)).all(-1)
        at = at.clamp(0, self.size - 1)
        copy = rows[:, None, None].expand(at.shape[:3])
        wall = self.blocked[copy, at[..., 0], at[..., 1]] & inside
        seen = inside & ((wall.cumsum(2) - wall.long()) == 0)
        self.known[copy[seen], at[..., 0][seen], at[..., 1][seen]] = True

    def observe(self) -> Tensor:
        found = torch.where(self.known, torch.where(self.blocked, OBSTACLE, FREE), UNKNOWN)
        found[self.rows, self.place[:, 0], self.place[:, 1]] = ROBOT
        if self.view is None:
            return found
        wide = pad(found, (self.view,) * 4, value=OBSTACLE)
        near = torch.arange(2 * self.view + 1, device=self.device)
        row, column = (self.place[:, i, None] + near for i in (0, 1))
        return wide[self.rows[:, None, None], row[:, :, None], column[:, None, :]]

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        aim = self.place + self.moves[action]
        inside = ((aim >= 0) & (aim < self.size)).all(1)
        safe = aim.clamp(0, self.size - 1)
        crashed = ~inside | self.blocked[self.rows, safe[:, 0], safe[:, 1]]
        self.place = torch.where(crashed[:, None], self.place, aim)
        before = self.known.sum((1, 2))
        self._scan(self.rows)
        gained = (self.known.sum((1, 2)) - before).float() - 0.2
        done = (self.known & self.coverable).sum((1, 2)) > self.goal * self.coverable.sum((1, 2))
        done &= ~crashed
        reward = torch.where(crashed, -self.bonus, torch.where(done, self.bonus, gained))
        return reward, crashed | done


def ray_cells(reach: float, rays: int) -> Tensor:
    """Returns the cells that rays cross, in order, as offsets [rays, L, 2]; a short ray repeats its last cell."""
    found = []
    for angle in np.arange(rays) * 2 * np.pi / rays:
        points = np.linspace(0, reach, RESOLUTION)[:, None] * np.round([np.cos(angle), np.sin(angle)], 9)
        crossed = np.round(points).astype(int)
        fresh = np.r_[True, (np.diff(crossed, axis=0) != 0).any(1)]
        found.append(crossed[fresh])
    most = max(map(len, found))
    return torch.tensor(np.stack([np.r_[ray, np.repeat(ray[-1:], most - len(ray), 0)] for ray in found]))


class RandomWalk(ControlRule):
    """A random move among those that do not lead off the terrain or into a known obstacle."""

    world = Coverage

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        terrain = _terrain(observation)
        open_ = _around(neighbours(terrain, OBSTACLE) < OBSTACLE, terrain)
        noise = torch.rand(open_.shape, generator=generator).to(observation.device)
        return torch.where(open_, noise, -1.0).argmax(1)


class FrontierRule(ControlRule):
    """The first move of a shortest way, through cells known as free, to the frontier cell of the least

        distance - gain * (unknown cells within the square of 2 reach + 1 cells a side)

    A frontier cell is known as free and has an unknown neighbour. gain: 0 is the nearest frontier (Yamauchi 1997); more
    is a utility of information and cost. reach: of the robot's rays.
    """

    gain: float = 0.0
    reach: int = 6

    world = Coverage

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        terrain = _terrain(observation)
        free = (terrain == FREE) | (terrain == ROBOT)
        cost = torch.where(free, 1.0, math.inf)
        frontier = free & (neighbours(terrain, OBSTACLE) == UNKNOWN).any(0)
        distance = cost_to_go(cost, terrain == ROBOT)
        worth = -distance
        if self.gain:
            side = 2 * self.reach + 1
            unknown = (terrain == UNKNOWN).float()[:, None]
            worth = worth + self.gain * side**2 * avg_pool2d(unknown, side, 1, self.reach)[:, 0]
        best = torch.where(frontier & distance.isfinite(), worth, -math.inf).flatten(1).argmax(1)
        size = terrain.shape[1]
        target = cells((size, size), torch.stack([best // size, best % size], 1))
        return _around(neighbours(cost_to_go(cost, target) + cost), terrain).argmin(1)


def _terrain(observation: Tensor) -> Tensor:
    """Returns observations [N, size * size] as [N, size, size]."""
    size = math.isqrt(observation.shape[1])
    return observation.view(-1, size, size)


def _around(values: Tensor, terrain: Tensor) -> Tensor:
    """Returns the values [4, N, H, W] at the robot's cell, [N, 4]."""
    place = (terrain == ROBOT).flatten(1).float().argmax(1)
    index = place[None, :, None].expand(4, -1, 1)
    return values.flatten(2).gather(2, index)[..., 0].T
