"""A fishery of one species, or of two that are fished and one that eats them; its classical rules and its optimum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Generator, Tensor

from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld

Numbers = NDArray[np.float64]
# Observations are stocks divided by this.
SCALE = 4.0
# An episode terminates when a stock is at most this, with the reward -100 / (t + 1) at step t.
COLLAPSE, PENALTY = 0.05, 100.0
# Parameters of the three species and of one, named as in the paper's program.
THREE = {"r": 1.0, "K": 1.0, "beta": 0.3, "v0": 0.3, "D": 1.1, "cV": 0.1, "f": 0.1, "dH": 0.1, "alpha": 1.0}
ONE = {"r": 1.0, "K": 1.0, "beta": 0.1, "v0": 0.3}
FIRST = {1: (0.7,), 3: (0.5, 0.5, 0.7)}


class Fishery(StepWorld):
    """Stocks that are harvested by a fraction a in [0, 1] and then grow. Of three species X, Y and Z,

        X <- X + r X (1 - X / K) - beta Z X^2 / (v0^2 + X^2) - cV X Y + sigma X xi
        Y <- Y + r Y (1 - Y / K) - D beta Z Y^2 / (v0^2 + Y^2) - cV X Y + sigma Y xi
        Z <- Z + alpha (Z (f (X + D Y) - dH) + sigma Z xi),    xi standard normal

    X and Y as harvesting left them; of one, X with a predator of constant stock Z = 1 and no Y. The reward is what was
    harvested, and -100 / (t + 1) more where a stock falls to 0.05 or less, which terminates the episode. Observations
    [N, species] are stocks / 4. Some 2.4 million steps a second with 1,024 copies on one core, 90,000 with 32.

    species: 1 or 3. fisheries: harvested species, of which action [N, fisheries] has a fraction each: 1, X, or 2.
    sigma: of growth. drift: by which r of X falls over an episode, linearly, as a share of it.
    spread: standard deviation of the first stocks around (0.5, 0.5, 0.7), or 0.7.
    parameters: of the growth, in place of those of the module's THREE or ONE.

    The paper's environment never truncates; this one does, after `horizon` steps. Stocks are kept at 0 or above.
    Source: arXiv:2308.13654.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        species: int = 3,
        fisheries: int = 1,
        sigma: float = 0.1,
        drift: float = 0.0,
        spread: float = 0.02,
        parameters: dict[str, float] | None = None,
        horizon: int = 200,
        device: str = "cpu",
    ) -> None:
        if species not in FIRST or not 1 <= fisheries <= (species + 1) // 2:
            raise ValueError(
                f"Fishery: species must be 1 or 3, and fisheries 1, or 2 of 3 species, found {species} and {fisheries}"
            )
        if not 0 <= drift <= 1 or sigma < 0 or spread < 0:
            raise ValueError(f"Fishery: needs drift in [0, 1], sigma and spread >= 0, found {drift}, {sigma}, {spread}")
        known = THREE if species == 3 else ONE
        given = parameters or {}
        if unknown := set(given) - set(known):
            raise ValueError(f"Fishery: no parameter {sorted(unknown)[0]!r}; it has {', '.join(known)}")
        self.species, self.fisheries, self.sigma, self.drift, self.spread = species, fisheries, sigma, drift, spread
        self.parameters = known | {name: float(value) for name, value in given.items()}
        self.single_observation_space = Box(0.0, math.inf, (species,), np.float32)
        self.single_action_space = Box(0.0, 1.0, (fisheries,), np.float32)
        settings = {"species": species, "fisheries": fisheries, "sigma": sigma, "drift": drift, "spread": spread}
        super().__init__(num_envs, horizon, settings | {"parameters": given}, device)
        self.stock = torch.zeros(num_envs, species, device=self.device)

    def begin(self, rows: Tensor) -> None:
        first = torch.tensor(FIRST[self.species], device=self.device)
        noise = self.spread * self.normal(len(rows), self.species)
        self.stock[rows] = (first + noise).clamp(min=2 * COLLAPSE)

    def observe(self) -> Tensor:
        return self.stock / SCALE

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        caught = self.stock[:, : self.fisheries] * action.clamp(0, 1)
        self.stock[:, : self.fisheries] -= caught
        self.stock = self._grown(self.stock, self.normal(self.num_envs, self.species)).clamp(min=0)
        collapsed = (self.stock <= COLLAPSE).any(1)
        return caught.sum(1) - torch.where(collapsed, PENALTY / (self.time + 1), 0), collapsed

    def _grown(self, stock: Tensor, noise: Tensor) -> Tensor:
        p, sigma = self.parameters, self.sigma
        r = p["r"] * (1 - self.drift * self.time / self.horizon)
        x, v = stock[:, 0], p["v0"] ** 2
        if self.species == 1:
            return (x + r * x * (1 - x / p["K"]) - p["beta"] * x * x / (v + x * x) + sigma * x * noise[:, 0])[:, None]
        y, z = stock[:, 1], stock[:, 2]
        both = p["cV"] * x * y
        grown_x = r * x * (1 - x / p["K"]) - p["beta"] * z * x * x / (v + x * x) - both + sigma * x * noise[:, 0]
        eaten_y = p["D"] * p["beta"] * z * y * y / (v + y * y)
        grown_y = p["r"] * y * (1 - y / p["K"]) - eaten_y - both + sigma * y * noise[:, 1]
        grown_z = p["alpha"] * (z * (p["f"] * (x + p["D"] * y) - p["dH"]) + sigma * z * noise[:, 2])
        return torch.stack([x + grown_x, y + grown_y, z + grown_z], 1)


class _HarvestRule(ControlRule):
    """A rule of the harvested stocks alone. fisheries: of the fishery; both are harvested by the same rule."""

    fisheries: int = 1

    world = Fishery

    def mortality(self, stock: Tensor) -> Tensor:
        """Returns the harvested fraction of each stock [...]."""
        raise NotImplementedError

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        return self.mortality(SCALE * observation[:, : self.fisheries]).clamp(0, 1)


class ConstantMortality(_HarvestRule):
    """The same fraction of every stock, at every size: maximum sustainable yield, or a share of it, if tuned."""

    fraction: float = 0.1

    def mortality(self, stock: Tensor) -> Tensor:
        return torch.full_like(stock, self.fraction)


class ConstantEscapement(_HarvestRule):
    """All above a stock that escapes: the fraction (X - S) / X of a stock X above the escapement S, else 0."""

    escapement: float = 0.5

    def mortality(self, stock: Tensor) -> Tensor:
        return (stock - self.escapement).clamp(min=0) / stock.clamp(min=1e-6)


class CautionaryRule(_HarvestRule):
    """A fraction that rises linearly with the stock, from 0 at `least` to `fraction` at `enough`, and stays there."""

    fraction: float = 0.2
    least: float = 0.0
    enough: float = 0.5

    def mortality(self, stock: Tensor) -> Tensor:
        return self.fraction * ((stock - self.least) / max(self.enough - self.least, 1e-6)).clamp(0, 1)


class FisheryOptimum(_HarvestRule):
    """The optimum of the one-species fishery, exact up to a grid of stocks, by dynamic programming over the horizon.

    With s the stock that escapes and s' its successor, V_t(x) = max_s [ x - s + E V_(t+1)(s') ] where s' > 0.05, and
    -100 / (t + 1) where it is not. On another fishery it is the optimum of a reduced model: that of X alone, with
    `beta` the predation at the mean stock of Z. The rule that it takes is the one of the first step, which does not
    change until some steps before the horizon's end.

    beta, sigma: of the model; None takes those of the environment's. The others are the environment's own.
    horizon: of the model; None takes the environment's.
    grid: stocks on [0, 2]. nodes: of the normal distribution.
    """

    beta: float | None = None
    sigma: float | None = None
    horizon: int | None = None
    grid: int = 401
    nodes: int = 41

    def setup(self) -> None:
        if self.grid < 11 or self.nodes < 3:
            raise ValueError(
                f"worlds.control.FisheryOptimum: needs grid >= 11 and nodes >= 3, found {self.grid} and {self.nodes}"
            )
        self.register_buffer("escaped", torch.zeros(0, dtype=torch.float64))
        self.value = math.nan

    def prepare(self, world: Fishery) -> ControlRule:
        """Returns the rule solved for an environment."""
        settings = {"beta": world.parameters["beta"], "sigma": world.sigma, "horizon": world.horizon}
        own = {name: getattr(self, name) for name in settings}
        chosen: dict[str, Any] = {n: settings[n] if own[n] is None else own[n] for n in settings}
        solved = self.but(**chosen, fisheries=world.fisheries)
        r, K, v0 = (world.parameters[name] for name in ("r", "K", "v0"))
        values, escapement = solve_one_species(
            r, K, v0, chosen["beta"], chosen["sigma"], chosen["horizon"], self.grid, self.nodes
        )
        solved.escaped = torch.as_tensor(escapement)
        solved.value = float(np.interp(FIRST[1][0], np.linspace(0, 2, self.grid), values))
        return solved

    def mortality(self, stock: Tensor) -> Tensor:
        escaped = self.get_buffer("escaped")
        if not len(escaped):
            raise ValueError("worlds.control.FisheryOptimum: prepare it for an environment first")
        place = stock.double().clamp(0, 2) * (self.grid - 1) / 2
        below = place.floor().clamp(max=self.grid - 2).long()
        part = place - below
        kept = (1 - part) * escaped[below] + part * escaped[below + 1]
        return ((stock - kept).clamp(min=0) / stock.clamp(min=1e-6)).float()


def solve_one_species(
    r: float, K: float, v0: float, beta: float, sigma: float, horizon: int, grid: int, nodes: int
) -> tuple[Numbers, Numbers]:
    """Returns the value of each stock before the first harvest, and the stock that the optimum lets escape, [grid]."""
    stock = np.linspace(0, 2, grid)
    middle = norm.ppf((np.arange(nodes) + 0.5) / nodes)
    middle /= max(float(middle.std()), 1e-12)
    grown = stock + r * stock * (1 - stock / K) - beta * stock**2 / (v0**2 + stock**2)
    after = np.clip(grown[:, None] + sigma * stock[:, None] * middle, 0, 2)
    alive = after > COLLAPSE
    value, kept = np.zeros(grid), np.zeros(grid)
    for t in reversed(range(horizon)):
        following = np.where(alive, np.interp(after, stock, value), -PENALTY / (t + 1)).mean(1)
        worth = following - stock  # of letting a stock escape, beside the harvest
        best = np.maximum.accumulate(worth)
        place = np.where(worth >= best, np.arange(grid), 0)
        kept = stock[np.maximum.accumulate(place)]
        value = stock + best
    return value, kept
