"""Logged single decisions of two kinds, few of which are good, with a cliff behind the good ones."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.transitions import Log, decisions, greedy_actions
from polopt.policies.network import NetworkPolicy

# Half width of the good actions' interval; behind it begins the cliff.
WIDTH = 0.15


def good_action(state: Tensor) -> Tensor:
    """Returns the middle of the good actions in states [N]."""
    return 0.4 * state + 0.2


def reward(state: Tensor, action: Tensor) -> Tensor:
    """1 + 2 u within WIDTH of a good action, u beyond it; -1 where u is larger; 0 elsewhere."""
    beyond = action - good_action(state)
    return torch.where(beyond > WIDTH, -1.0, torch.where(beyond >= -WIDTH, 1 + 2 * beyond, 0.0))


def mostly_bad(seed: int, count: int = 2000, good: float = 0.2) -> Log:
    """Returns a log whose actions are 0.7 below the good ones, with reward 0, but for a share `good` of them, which
    rises to their upper edge; none is beyond it."""

    def act(s: Tensor, draw: Generator) -> Tensor:
        is_good = torch.rand(len(s), generator=draw) < good
        spread = (0.05 * torch.randn(len(s), generator=draw)).clamp(-WIDTH, WIDTH)
        return (torch.where(is_good, good_action(s), good_action(s) - 0.7) + spread).clamp(-1, 1)

    return decisions(count, seed, act, reward)


def mean_reward(policy: NetworkPolicy) -> float:
    """Returns the mean reward of a policy's most likely actions over the states."""
    states = torch.linspace(-1, 1, 401)
    return float(reward(states, greedy_actions(policy, states)).mean())
