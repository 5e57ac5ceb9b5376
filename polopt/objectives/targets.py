"""Targets that networks of values are regressed on."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.outputs import NetworkOutput, Proposal
from polopt.part import Part

Over = Literal["min", "mean", "first"]
# The policy's log-probability [B, T, n] of every choice, in the state before a decision and in the one after it.
EVERY_LOGP = NetworkOutput("logp", proposal=Proposal(of="every"))
NEXT_EVERY_LOGP = NetworkOutput("logp", next=True, proposal=Proposal(of="every"))


def over_heads(values: Tensor, how: Over) -> Tensor:
    """Returns one value of an ensemble's, [..., H] to [...]: the least, the mean or the first."""
    if how == "first":
        return values[..., 0]
    return values.amin(-1) if how == "min" else values.mean(-1)


class Target(Part):
    """`target(experience, evaluation) -> [B, T]`, without gradient."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


class NextValue(Part):
    """`next(experience, evaluation) -> [B, T]` the value of the state after each decision."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


class ProposedActionValue(NextValue):
    """min_h Q_target,h(s', a') - alpha log pi(a' | s') with a' an action of the policy at s'.

    critic: the network Q.
    over: what is taken of its heads.
    heads: how many of them, drawn for each minibatch; None is all.
    temperature: the network alpha, or a number; 0 leaves the entropy out.
    target_policy: whether a' is an action of the policy's target copy.
    noise: standard deviation of Gaussian noise on a', in half widths of the actions' bounds.
    noise_clip: limit of that noise.

    Source: Haarnoja et al. 2018, arXiv 1812.05905; Fujimoto, van Hoof and Meger 2018, arXiv 1802.09477.
    """

    critic: str = "critic"
    over: Over = "min"
    heads: int | None = None
    temperature: str | float = 0.0
    target_policy: bool = False
    noise: float = 0.0
    noise_clip: float = 0.5

    def setup(self) -> None:
        if self.noise < 0 or self.noise_clip <= 0:
            raise ValueError(
                f"objectives.ProposedActionValue: need noise >= 0 and noise_clip > 0, found {self.noise}, "
                f"{self.noise_clip}"
            )
        if self.heads is not None and self.heads < 1:
            raise ValueError(f"objectives.ProposedActionValue: heads must be >= 1, found {self.heads}")
        proposal = Proposal(self.target_policy, self.noise, self.noise_clip)
        self._value = NetworkOutput(self.critic, target=True, next=True, proposal=proposal, heads=self.heads)
        self._logp = NetworkOutput("logp", next=True, proposal=proposal)

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self._value.name}) | entropy_outputs(self.temperature, self._logp)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        value = over_heads(evaluated(evaluation, self._value), self.over)
        return value - entropy_cost(self.temperature, self._logp, evaluation, value)


class ExpectedActionValue(NextValue):
    """sum_a pi(a | s') Q_target(s', a) over all choices a, Q the mean of its heads.

    critic: the network Q.
    """

    critic: str = "critic"

    @property
    def _value(self) -> NetworkOutput:
        return NetworkOutput(self.critic, target=True, next=True, proposal=Proposal(of="every"))

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self._value.name, NEXT_EVERY_LOGP.name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        chance = evaluated(evaluation, NEXT_EVERY_LOGP).exp()
        return (chance * evaluated(evaluation, self._value).mean(-1)).sum(-1)


class NetworkNextValue(NextValue):
    """V(s'), a network's value of the state after each decision.

    value: the network.
    target: whether it is that of the network's target copy.
    """

    value: str = "value"
    target: bool = False

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.value, self.target, next=True).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return evaluated(evaluation, NetworkOutput(self.value, self.target, next=True))


class Backup(Target):
    """r + gamma V(s'), without the second term where the decision terminated the episode. After a truncation the value
    is that of the state in which the episode was cut.

    gamma: discount; None takes that of each row, `extras.discount`, of transitions that span several decisions.
    next: V(s').
    """

    gamma: float | None = 0.99
    next: NextValue = ProposedActionValue()

    def setup(self) -> None:
        if self.gamma is not None and not 0 <= self.gamma <= 1:
            raise ValueError(f"objectives.Backup: gamma must be in [0, 1], found {self.gamma}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        own = {"extras.discount"} if self.gamma is None else set[str]()
        return frozenset({"reward", "terminated"} | own)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        after = self.next(experience, evaluation)
        gamma = self._discount(experience)
        reward = ops.per_decision_reward(experience.reward, experience.mask)
        over = ops.per_decision_end(experience.terminated, experience.mask)
        return reward + gamma * torch.where(over, 0, after)

    def _discount(self, experience: Experience) -> Tensor | float:
        own = experience.extras.get("discount")
        if self.gamma is None:
            assert own is not None
            return torch.where(experience.mask, own, 0)
        if own is not None:
            raise ExperienceError(
                f"objectives.Backup has gamma = {self.gamma}, and the batch's transitions have discounts of their own, "
                "extras['discount']; set gamma to null"
            )
        return self.gamma


class LoggedActionValue(Target):
    """min_h Q_target,h(s, a) of the logged actions.

    critic: the network Q.
    over: what is taken of its heads.
    """

    critic: str = "critic"
    over: Over = "min"

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({NetworkOutput(self.critic, target=True).name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return over_heads(evaluated(evaluation, NetworkOutput(self.critic, target=True)), self.over)


def evaluated(evaluation: Evaluation, output: NetworkOutput) -> Tensor:
    """Returns a network's output of an evaluation."""
    return evaluation.extras[output.name.removeprefix("extras.")]


def entropy_outputs(temperature: str | float, logp: NetworkOutput) -> frozenset[str]:
    """Returns the outputs that `entropy_cost` reads."""
    if temperature == 0:
        return frozenset()
    network = {NetworkOutput(temperature).name} if isinstance(temperature, str) else set[str]()
    return frozenset({logp.name, *network})


def entropy_cost(temperature: str | float, logp: NetworkOutput, evaluation: Evaluation, like: Tensor) -> Tensor:
    """Returns alpha log pi(a | s) of a proposed action, [B, T], or of several, [B, T, K]; alpha without gradient."""
    if temperature == 0:
        return torch.zeros_like(like)
    found = evaluated(evaluation, logp)
    if not isinstance(temperature, str):
        return temperature * found
    alpha = evaluated(evaluation, NetworkOutput(temperature)).detach()
    return alpha.view(*alpha.shape, *[1] * (found.ndim - alpha.ndim)) * found
