"""Rules: policies that are written down, and classical baselines of what is learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from polopt.networks import Program
from polopt.part import Part
from polopt.worlds.control.world import StepWorld, states

# Rules of a grid that are tried at once.
AT_ONCE = 16


class ControlRule(Part):
    """A policy without anything learned by gradient: its call maps observations to actions.

    A recipe lists rules under `evaluation.rules`, and every full evaluation plays as many episodes with each.

    world: the class of environments that the rule is for.
    """

    world: ClassVar[type] = object

    def check(self, world: Any) -> None:
        """Raises ValueError where the rule cannot play an environment of its class with such settings."""

    def prepare(self, world: Any) -> ControlRule:
        """Returns the rule for an environment, which it may read and try copies of; itself if it needs neither."""
        return self

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        """Returns the actions, [N] int64 or [N, A], for observations [N, D]."""
        raise NotImplementedError


class RandomRule(ControlRule):
    """Uniformly random actions among `actions` choices."""

    actions: int

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        return torch.randint(self.actions, (len(observation),), generator=generator).to(observation.device)


class ProgramRule(ControlRule):
    """A program that methods act near, played by itself."""

    program: Program

    def check(self, world: Any) -> None:
        seen, decided = world.single_observation_space, world.single_action_space
        if seen.shape is None:  # of several entries
            return
        with torch.no_grad():
            found = self.program(torch.zeros(2, math.prod(seen.shape)))
        if hasattr(decided, "n") or found.shape[1:] != (math.prod(decided.shape),):
            raise ValueError(
                f"{type(self.program).__name__} must return vectors of the environment's actions, {decided}, found "
                f"{[*found.shape]} for two observations"
            )

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        found: Tensor = self.program(observation)
        return found


class TunedRule(ControlRule):
    """A rule with the values of its settings that have the largest mean return in the environment itself.

    rule: with any values. low, high: bounds by setting, a grid of `points` values each, of which all combinations are
    tried on `episodes` episodes. seed: of these episodes.

    Raises:
        ValueError: a grid of no setting, of other settings in low than in high, or of fewer than 2 points.
    """

    rule: ControlRule
    low: dict[str, float]
    high: dict[str, float]
    points: int = 21
    episodes: int = 256
    seed: int = 0

    world = StepWorld

    def setup(self) -> None:
        if not self.low or self.low.keys() != self.high.keys() or self.points < 2:
            raise ValueError(
                "worlds.control.TunedRule: needs low and high of the same settings, and points >= 2, found "
                f"{[*self.low]}, {[*self.high]} and {self.points}"
            )

    def prepare(self, world: StepWorld) -> ControlRule:
        """Returns the best rule of the grid."""
        rules, values = self.candidates(), list[float]()
        for i in range(0, len(rules), AT_ONCE):
            part = [rule.prepare(world) for rule in rules[i : i + AT_ONCE]]
            returns = episode_returns(world.again(len(part) * self.episodes), part, self.seed)
            values += returns.view(len(part), -1).mean(1).tolist()
        return rules[int(np.argmax(values))].prepare(world)

    def candidates(self) -> list[ControlRule]:
        """Returns the rules of the grid."""
        axes = [np.linspace(self.low[name], self.high[name], self.points).tolist() for name in self.low]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
        return [self.rule.but(dict(zip(self.low, row, strict=True))) for row in grid.tolist()]


@torch.no_grad()
def episode_returns(world: StepWorld, rules: ControlRule | Sequence[ControlRule], seed: int = 0) -> Tensor:
    """Returns the undiscounted return of the first episode of each copy, [N].

    rules: one rule, or several, each of which plays as many copies, one after another.
    """
    rules = [rules] if isinstance(rules, ControlRule) else list(rules)
    observation, _ = world.reset(seed=seed)
    generator = Generator().manual_seed(seed)
    total = torch.zeros(world.num_envs, dtype=torch.float64, device=world.device)
    alive = torch.ones_like(total, dtype=torch.bool)
    for _ in range(world.horizon):
        parts = states(observation).chunk(len(rules))
        action = torch.cat([rule(part, generator) for rule, part in zip(rules, parts, strict=True)])
        observation, reward, terminated, truncated, _ = world.step(action)
        total += torch.where(alive, reward, 0)
        alive &= ~(terminated | truncated)
        if not alive.any():
            break
    return total
