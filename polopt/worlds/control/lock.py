"""A combination lock: a long code that gives one reward at its end, with small rewards for leaving it."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld

# The latent state from which no episode comes back; 0 and 1 are on the code.
LOST = 2


class CombinationLock(StepWorld):
    """A code of `horizon` choices. At step h the latent state is 0 or 1 on the code, or 2 off it. The one right choice
    of state 0 or 1 leads to either with equal chance, every other choice to 2, from where all lead to 2:

        r = 1 for the right choice at the last step,   shaping / horizon for each choice that is not right,   else 0

    Observations [N, 3 horizon] are one where the step and the latent state are, and 0 elsewhere. The optimum is 1, and
    that of a policy that leaves at once is `shaping`; a uniform one ends on the code with chance actions^-horizon.

    actions: choices. shaping: sum of the rewards of an episode without a right choice. code: seed of the right choices.

    The observations of the paper's lock are rotated and have noise. Source: arXiv:2311.08384.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        actions: int = 10,
        shaping: float = 0.1,
        code: int = 0,
        horizon: int = 12,
        device: str = "cpu",
    ) -> None:
        if actions < 2 or not 0 <= shaping < 1:
            raise ValueError(f"CombinationLock: needs actions >= 2 and shaping in [0, 1), found {actions}, {shaping}")
        self.single_observation_space = Box(0.0, 1.0, (3 * horizon,), np.float32)
        self.single_action_space = Discrete(actions)
        settings = {"actions": actions, "shaping": shaping, "code": code}
        super().__init__(num_envs, horizon, settings, device)
        self.shaping = shaping
        drawn = torch.randint(actions, (horizon, 2), generator=Generator().manual_seed(code))
        self.right = torch.cat([drawn, torch.full((horizon, 1), -1)], 1).to(self.device)
        self.latent = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def begin(self, rows: Tensor) -> None:
        self.latent[rows] = (self.uniform(len(rows)) < 0.5).long()

    def observe(self) -> Tensor:
        place = 3 * self.time.clamp(max=self.horizon - 1) + self.latent
        return one_hot(place, 3 * self.horizon).float()

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        right = action == self.right[self.time, self.latent]
        over = self.time + 1 >= self.horizon
        self.latent = torch.where(right, (self.uniform(self.num_envs) < 0.5).long(), LOST)
        return torch.where(right, over.float(), self.shaping / self.horizon), over


class LockRule(ControlRule):
    """The right choices of a lock, which are the optimum; with chance `epsilon` a uniformly random one."""

    epsilon: float = 0.0

    world = CombinationLock

    def setup(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"worlds.control.LockRule: epsilon must be in [0, 1], found {self.epsilon}")
        self.register_buffer("right", torch.zeros(0, 3, dtype=torch.int64))
        self.actions = 0

    def prepare(self, world: CombinationLock) -> ControlRule:
        """Returns the rule for a lock's code."""
        made = self.but(epsilon=self.epsilon)
        made.right, made.actions = world.right, int(world.single_action_space.n)  # type: ignore[attr-defined]
        return made

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        if not self.actions:
            raise ValueError("worlds.control.LockRule: prepare it for an environment first")
        right = self.get_buffer("right").flatten()[observation.argmax(-1)].clamp(min=0)
        other = torch.randint(self.actions, right.shape, generator=generator).to(right)
        explores = torch.rand(right.shape, generator=generator).to(observation) < self.epsilon
        return torch.where(explores, other, right)
