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
from polopt.networks import Space
from polopt.policies.head import HeadName
from polopt.policies.network import NetworkPolicy
from polopt.sampling import WeightedLog, policy_input_of, spanning, transition_rows
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
        "following": torch.zeros(count, dtype=torch.int64),
    }


def cliff(seed: int, count: int = 2000) -> Log:
    """Returns a log of decisions within 0.2 of 0, with reward a. Beyond 0.25 the reward is -1, which the log does not
    show."""

    def act(s: Tensor, draw: torch.Generator) -> Tensor:
        return 0.4 * torch.rand(len(s), generator=draw) - 0.2

    return decisions(count, seed, act, lambda s, a: a)


def reward_at_the_cliff(policy: NetworkPolicy) -> float:
    """Returns the mean reward of a policy's greedy actions there."""
    action = greedy_actions(policy, torch.linspace(-1, 1, 200))
    return float(torch.where(action.abs() > 0.25, -1.0, action).mean())


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
    _weighted: WeightedLog | None = None

    def logged_transitions(
        self, rows: int, *, n_steps: int = 1, gamma: float | None = None, weights: Any = None
    ) -> Experience:
        """See `sampling.source_protocols.LoggedTransitionSource`."""
        if weights is None:
            place = torch.randint(len(self.log["reward"]), (rows,), generator=self.generator)
        else:
            self._weighted = self._weighted or WeightedLog(self.log, weights)
            place = self._weighted.draw(rows, self.generator)
        return transition_rows(spanning(self.log, place, n_steps, gamma), self.support)


def learned_from(
    log: Log,
    algorithm: Algorithm,
    *,
    head: HeadName,
    steps: int,
    seed: int,
    lr: float = 3e-3,
    batch: int = 64,
    hidden: tuple[int, ...] = (32, 32),
) -> tuple[NetworkPolicy, NetworkTraining]:
    """Trains a policy, and the networks beside it, on minibatches of a log; nothing is played.

    head: of the policy, over actions in [-1, 1], or over choices where the log's actions are integers. batch:
    transitions in a minibatch. steps: minibatches. hidden: widths of a policy without a trunk of its own.
    """
    draw = torch.Generator().manual_seed(seed)
    algorithm = algorithm.but({"sampling.logged": 1.0, "sampling.rows": batch})
    policy = policy_for(log, head, seed, algorithm, hidden)
    source = LogSource(log, policy.head.support, draw)
    networks = NetworkTraining(policy, algorithm, lr, draw)
    optimiser = torch.optim.Adam(policy.parameters(), lr)
    for _ in range(steps):
        rows = algorithm.with_advantages(algorithm.sampling(source))
        rows = networks.relabelled(rows)
        networks.begin_minibatch()
        networks.step(rows)
        if networks.policy_is_due:
            optimiser.zero_grad()
            algorithm.objective(rows, networks.evaluate(rows, algorithm.objective)).loss.backward()
            optimiser.step()
        networks.move_targets()
    return policy, networks


def policy_for(
    log: Log, head: HeadName, seed: int, algorithm: Algorithm, hidden: tuple[int, ...] = (32, 32)
) -> NetworkPolicy:
    """Returns a policy for a log's observations and actions, and for what the algorithm needs of it."""
    action, space = log["action"], dict[str, Any]()
    if action.is_floating_point():
        A = action.shape[1]
        space = {"dimensions": A, "low": [-1.0] * A, "high": [1.0] * A}
    else:
        space = {"actions": int(action.max()) + 1}
    if (given := policy_input_of(algorithm.sampling)) is not None:
        sizes = Space(log["observation"].shape[1], space.get("actions"), space.get("dimensions"))
        space["inputs"] = {given.name: given.width(sizes)}
    space |= {"observations": log["observation"].shape[1], "trunk": algorithm.trunk}
    return NetworkPolicy(head=head, hidden=hidden, activation="relu", seed=seed, **space)


@torch.no_grad()
def greedy_actions(policy: NetworkPolicy, states: Tensor) -> Tensor:
    """Returns the policy's most likely actions [N] in states [N]."""
    return policy.act(states[:, None], torch.Generator(), greedy=True).action[:, 0]
