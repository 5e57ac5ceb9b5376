"""Pairs of rewards on small random problems: one is another plus noise, seen through changes that rank no policy."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.metrics import TabularRewardPair
from polopt.problems.mdp import random_mdp

GAMMA = 0.9
STATES, ACTIONS = 5, 3


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(g: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g, dtype=torch.double)


def disguised(reward: Tensor, transitions: Tensor, g: torch.Generator, size: float = 2.0) -> Tensor:
    """Returns a positive multiple of a reward, shaped by a random potential and redistributed over successors; both
    changes have numbers of about `size`."""
    potential, moved = size * normal(g, len(reward)), size * normal(g, *reward.shape)
    moved = moved - (transitions * moved).sum(-1, keepdim=True)
    scale = 0.5 + 2 * torch.rand((), generator=g, dtype=torch.double)
    return scale * reward + GAMMA * potential - potential[:, None, None] + moved


def equivalent(seed: int) -> TabularRewardPair:
    """Returns a random reward, and the same one disguised."""
    g, p = generator(seed), random_mdp(seed, STATES, ACTIONS, GAMMA).transitions
    reward = normal(g, *p.shape)
    return TabularRewardPair(p, reward, disguised(reward, p, g))


def mixed(seed: int, disguise: float = 2.0) -> TabularRewardPair:
    """Returns a random reward, and one between it and another random one, disguised."""
    g, p = generator(seed), random_mdp(seed, STATES, ACTIONS, GAMMA).transitions
    reward, noise = normal(g, *p.shape), normal(g, *p.shape)
    share = torch.rand((), generator=g, dtype=torch.double)
    return TabularRewardPair(p, reward, disguised((1 - share) * reward + share * noise, p, g, disguise))
