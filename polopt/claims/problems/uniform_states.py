"""States that come uniformly, with a reward for each choice: sampling errors and policy gradients are exact sums."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Generator, Tensor

from polopt.experience import Experience
from polopt.policies.network import NetworkPolicy
from polopt.worlds.control.world import StepWorld

STATES, CHOICES = 10, 5


class UniformStates(StepWorld):
    """Episodes of one decision, in a state that is drawn uniformly; an observation [10] marks it.

    The reward of each of 5 choices in a state is a standard normal number. seed: of the rewards.
    """

    single_observation_space = Box(0, 1, (STATES,), np.float32)
    single_action_space = Discrete(CHOICES)

    def __init__(self, *, num_envs: int = 1, horizon: int = 1, seed: int = 0, device: str = "cpu") -> None:
        super().__init__(num_envs, horizon, {"seed": seed}, device)
        self.rewards = torch.randn(STATES, CHOICES, generator=Generator().manual_seed(seed)).to(self.device)
        self.state = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def begin(self, rows: Tensor) -> None:
        self.state[rows] = (STATES * self.uniform(len(rows))).long()

    def observe(self) -> Tensor:
        return torch.nn.functional.one_hot(self.state, STATES).float()

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.rewards[self.state, action], torch.ones_like(self.state, dtype=torch.bool)


def table_policy(seed: int) -> NetworkPolicy:
    """Returns a policy whose logits are a table of standard normal numbers."""
    policy = NetworkPolicy(observations=STATES, actions=CHOICES, hidden=(), seed=seed)
    torch.nn.init.normal_(policy.actor[0].weight, generator=Generator().manual_seed(seed))  # type: ignore[index]
    return policy


@torch.no_grad()
def probabilities(policy: NetworkPolicy) -> Tensor:
    """Returns pi(a | s), [states, choices], in float64."""
    return policy.choice_logp(torch.eye(STATES)).double().exp()


def share_of_best(world: UniformStates, policy: NetworkPolicy) -> float:
    """Returns the policy's expected reward less that of uniform choices, over that of the best ones less the same."""
    rewards = world.rewards.double()
    mean, best = rewards.mean(), rewards.amax(1).mean()
    return float(((probabilities(policy) * rewards).sum(1).mean() - mean) / (best - mean))


@dataclasses.dataclass(frozen=True)
class Frequencies:
    """The errors of a batch as a sample of a policy.

    divergence: sum_s d(s) KL(frequencies in s || pi(. | s)), d(s) the frequency of s, in nats.
    gradient_error: the squared distance of the mean of r grad log pi from the policy gradient, in logits.
    bias: the mean reward less its expectation.
    """

    divergence: float
    gradient_error: float
    bias: float


def frequencies(world: UniformStates, policy: NetworkPolicy, batch: Experience) -> Frequencies:
    """Returns what a batch in the world says of the policy."""
    chance, rewards = probabilities(policy), world.rewards.double()
    state = batch.extras["observation"][:, : batch.mask.shape[1]].argmax(-1)
    place = (state * CHOICES + batch.extras["action"])[batch.mask]
    share = torch.bincount(place, minlength=STATES * CHOICES).double().view(STATES, CHOICES) / len(place)
    visits = share.sum(1, keepdim=True)
    divergence = torch.where(share > 0, share * (share / (visits * chance)).log(), 0).sum()
    error = (gradient(share, chance, rewards) - gradient(chance / STATES, chance, rewards)).pow(2).sum()
    expected = (chance * rewards).sum(1).mean()
    return Frequencies(float(divergence), float(error), float((share * rewards).sum() - expected))


def gradient(share: Tensor, chance: Tensor, rewards: Tensor) -> Tensor:
    """Returns sum_sa share(s, a) r(s, a) grad log pi(a | s) with respect to the logits, [states, choices]."""
    weighted = share * rewards
    return weighted - weighted.sum(1, keepdim=True) * chance
