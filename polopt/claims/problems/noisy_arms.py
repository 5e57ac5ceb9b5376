"""Fifty arms whose rewards are mostly noise: a policy that goes too fast from few of them stays with the wrong one."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Generator, Tensor

from polopt.policies.network import NetworkPolicy
from polopt.worlds.control.world import StepWorld

ARMS = 50


class NoisyArms(StepWorld):
    """Episodes of one decision: the reward of an arm is N(mu, 4^2), and mu is N(0, 1 / 4) over arms. seed: of them."""

    single_observation_space = Box(0, 1, (1,), np.float32)
    single_action_space = Discrete(ARMS)

    def __init__(self, *, num_envs: int = 1, horizon: int = 1, seed: int = 0, device: str = "cpu") -> None:
        super().__init__(num_envs, horizon, {"seed": seed}, device)
        self.means = 0.5 * torch.randn(ARMS, generator=Generator().manual_seed(seed)).to(self.device)

    def begin(self, rows: Tensor) -> None:
        pass

    def observe(self) -> Tensor:
        return torch.ones(self.num_envs, 1, device=self.device)

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        uniform = self.uniform(2 * len(action)).view(2, -1).clamp(min=1e-12)
        noise = (-2 * uniform[0].log()).sqrt() * (2 * torch.pi * uniform[1]).cos()
        return self.means[action] + 4 * noise, torch.ones_like(action, dtype=torch.bool)


@torch.no_grad()
def share_of_best(world: NoisyArms, policy: NetworkPolicy) -> float:
    """Returns the policy's expected reward over that of the best arm."""
    chance = policy.choice_logp(torch.ones(1, 1))[0].exp()
    return float((chance * world.means).sum() / world.means.max())
