"""Policies that explore while transitions are collected: at random, or with noise."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.policies.head import Action
from polopt.policies.network import NetworkPolicy


class UniformPolicy:
    """Uniformly random actions of another policy's space, or of the interval that it acts in.

    low, high: bounds of a vector, [A].
    """

    def __init__(self, policy: NetworkPolicy, low: Tensor, high: Tensor) -> None:
        self.device, self.head, self._space = policy.device, policy.head, policy.space
        self._policy, self._bounds = policy, (low, high)

    @torch.no_grad()
    def act(
        self, observation: Tensor, generator: Generator, *, greedy: bool = False, legal: Tensor | None = None
    ) -> Action:
        """Samples an action for each observation, [N, D]."""
        count, choices = len(observation), self._space.actions
        if choices is not None:
            chance = torch.ones(count, choices) if legal is None else legal.float()
            action = torch.multinomial(chance, 1, generator=generator)[:, 0]
            return Action(action, -chance.sum(1).log())
        low, high = self._bounds
        if self.head.takes_interval:
            low, high = self.head.limits(self._policy.law(observation)) or self._bounds
        width = high - low
        action = low + width * torch.rand(count, width.shape[-1], generator=generator).to(width)
        return Action(action, -width.log().sum(-1).expand(count))


class NoisyPolicy:
    """A policy's most likely action with Gaussian noise, within the bounds or the interval that it acts in; `logp` is
    0, without meaning.

    noise: its standard deviation, in half widths of the bounds low and high, [A].
    """

    def __init__(self, policy: NetworkPolicy, noise: float, low: Tensor, high: Tensor) -> None:
        self.device, self.head, self._policy = policy.device, policy.head, policy
        self._bounds, self._noise = (low, high), noise * (high - low) / 2

    @torch.no_grad()
    def act(
        self, observation: Tensor, generator: Generator, *, greedy: bool = False, legal: Tensor | None = None
    ) -> Action:
        """Samples an action for each observation, [N, D]."""
        law = self._policy.law(observation)
        action, (low, high) = self.head.mode(law), self.head.limits(law) or self._bounds
        noise = torch.randn(action.shape, generator=generator).to(action) * self._noise
        return Action((action + noise).clamp(low, high), action.new_zeros(len(action)))


class EpsilonGreedyPolicy:
    """A policy's most likely choice, or with chance `epsilon` a uniformly random legal one; `logp` is 0, without
    meaning."""

    def __init__(self, policy: NetworkPolicy, epsilon: float) -> None:
        self.device, self.head, self._policy, self._epsilon = policy.device, policy.head, policy, epsilon
        self._uniform = UniformPolicy(policy, torch.zeros(0), torch.zeros(0))

    def act(
        self, observation: Tensor, generator: Generator, *, greedy: bool = False, legal: Tensor | None = None
    ) -> Action:
        """Samples an action for each observation, [N, D]."""
        best = self._policy.act(observation, generator, greedy=True, legal=legal).action
        other = self._uniform.act(observation, generator, legal=legal).action.to(best)
        explores = torch.rand(len(best), generator=generator).to(best.device) < self._epsilon
        return Action(torch.where(explores, other, best), observation.new_zeros(len(best)))
