"""Small problems of logged transitions, and policies that learn from them beside their networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.network_training import NetworkTraining
from polopt.policies.heads import HeadName
from polopt.policies.network import NetworkPolicy
from polopt.sampling import spanning, transition_rows
from polopt.support import Support

Log = Mapping[str, Tensor]


def decisions(
    count: int, seed: int, act: Callable[[Tensor, torch.Generator], Tensor], reward: Callable[[Tensor, Tensor], Tensor]
) -> Log:
    """Returns a log of single decisions: a state s uniform on [-1, 1], an action of `act`, and its reward.

    act: (s [N], generator) -> a [N] within [-1, 1]. reward: (s [N], a [N]) -> [N].
    """
    draw = torch.Generator().manual_seed(seed)
    state = 2 * torch.rand(count, generator=draw) - 1
    action = act(state, draw)
    return {
        "observation": state[:, None],
        "next_observation": state[:, None],
        "action": action[:, None],
        "reward": reward(state, action),
        "terminated": torch.ones(count, dtype=torch.bool),
        "truncated": torch.zeros(count, dtype=torch.bool),
    }


def endless_noise(count: int, seed: int) -> Log:
    """Returns a log of a process whose rewards are noise N(0, 1) whatever the policy does, so that every value is 0;
    states and actions are uniform on [-1, 1], and nothing ends."""
    draw = torch.Generator().manual_seed(seed)
    state, after, action = (2 * torch.rand(count, 1, generator=draw) - 1 for _ in range(3))
    never = torch.zeros(count, dtype=torch.bool)
    rewards = torch.randn(count, generator=draw)
    return {
        "observation": state,
        "next_observation": after,
        "action": action,
        "reward": rewards,
        "terminated": never,
        "truncated": never,
    }


@dataclasses.dataclass
class LogSource:
    """A source that has a log alone."""

    log: Log
    support: Support
    generator: torch.Generator

    def logged_transitions(self, rows: int, *, n_steps: int = 1, gamma: float | None = None) -> Experience:
        """See `sampling.source_protocols.LoggedTransitionSource`."""
        place = torch.randint(len(self.log["reward"]), (rows,), generator=self.generator)
        return transition_rows(spanning(self.log, place, n_steps, gamma), self.support)


def learned_from(
    log: Log, algorithm: Algorithm, *, head: HeadName, steps: int, seed: int, lr: float = 3e-3, batch: int = 64
) -> tuple[NetworkPolicy, NetworkTraining]:
    """Trains a policy, and the networks beside it, on minibatches of a log; nothing is played.

    head: of the policy, over actions in [-1, 1], or over choices where the log's actions are integers. batch:
    transitions in a minibatch. steps: minibatches.
    """
    draw = torch.Generator().manual_seed(seed)
    algorithm = algorithm.but({"sampling.logged": 1.0, "sampling.rows": batch})
    policy = policy_for(log, head, seed)
    source = LogSource(log, policy.head.support, draw)
    networks = NetworkTraining(policy, algorithm, lr, draw)
    optimiser = torch.optim.Adam(policy.parameters(), lr)
    for _ in range(steps):
        rows = algorithm.with_advantages(algorithm.sampling(source))
        rows = networks.relabelled(rows)
        networks.step(rows)
        if networks.policy_is_due:
            optimiser.zero_grad()
            algorithm.objective(rows, networks.evaluate(rows, algorithm.objective)).loss.backward()
            optimiser.step()
        networks.move_targets()
    return policy, networks


def policy_for(log: Log, head: HeadName, seed: int) -> NetworkPolicy:
    """Returns a policy for a log's observations and actions."""
    action, space = log["action"], dict[str, Any]()
    if action.is_floating_point():
        A = action.shape[1]
        space = {"dimensions": A, "low": [-1.0] * A, "high": [1.0] * A}
    else:
        space = {"actions": int(action.max()) + 1}
    observations = log["observation"].shape[1]
    return NetworkPolicy(observations=observations, head=head, hidden=(32, 32), activation="relu", seed=seed, **space)


@torch.no_grad()
def greedy_actions(policy: NetworkPolicy, states: Tensor) -> Tensor:
    """Returns the policy's most likely actions [N] in states [N]."""
    return policy.act(states[:, None], torch.Generator(), greedy=True).action[:, 0]
