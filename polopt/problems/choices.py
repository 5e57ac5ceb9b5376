"""Offline choices: what a human chose in a finite-horizon problem, whose rewards nobody has seen."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from polopt.errors import UserError

# The value of a state to a human who chooses by logits: the mean of Q under the choices, or with the value of choosing.
HumanValue = Literal["mean", "logsumexp"]


class ChoiceError(UserError, ValueError):
    """Choices or features of an offline problem contradict each other."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OfflineChoices:
    """Choices of a human in H steps, and, for measurements alone, the problem in which they were made.

    counts: [H, S, A, S] how often each (state, choice, next state) occurred at each step; fractions are allowed.
    features: [S, A, d] of a state and action, in which rewards, values and expectations are linear.
    discount: the human's. anchor: the action whose reward is known to be 0 in every state.
    human_value: how the human values a state.
    transitions: [S, A, S]. reward: [S, A]. start: [S] the distribution of the first state.

    Raises:
        ChoiceError: sizes that do not fit, negative counts, an anchor that is no action or has a reward.
    """

    counts: Tensor
    features: Tensor
    discount: float
    anchor: int
    transitions: Tensor
    reward: Tensor
    start: Tensor
    human_value: HumanValue = "mean"
    name: str = "offline-choices"
    unit: str = "reward"

    def __post_init__(self) -> None:
        S, A = self.reward.shape
        if self.counts.shape[1:] != (S, A, S) or self.features.shape[:2] != (S, A):
            raise ChoiceError(
                f"{self.name}: reward [S, A] = {[S, A]} needs counts [H, S, A, S] and features [S, A, d], found "
                f"{list(self.counts.shape)} and {list(self.features.shape)}"
            )
        if (self.counts < 0).any() or not 0 <= self.discount <= 1 or not 0 <= self.anchor < A:
            raise ChoiceError(
                f"{self.name}: need counts of at least 0, 0 <= discount <= 1 and an anchor among {A} actions, found "
                f"{float(self.counts.min()):g}, {self.discount} and {self.anchor}"
            )
        if (self.reward[:, self.anchor] != 0).any():
            raise ChoiceError(f"{self.name}: the reward of the anchor must be 0 in every state; subtract it from all")

    @property
    def horizon(self) -> int:
        return len(self.counts)

    def value(self, policy: Tensor) -> float:
        """Computes the expected sum of rewards, without discount, of a policy [H, S, A]."""
        values = torch.zeros(len(self.start), dtype=torch.double)
        for h in reversed(range(self.horizon)):
            values = (policy[h] * (self.reward + self.transitions @ values)).sum(-1)
        return float(self.start @ values)

    def best(self) -> float:
        """Returns the largest value of any policy."""
        values = torch.zeros(len(self.start), dtype=torch.double)
        for _ in range(self.horizon):
            values = (self.reward + self.transitions @ values).amax(-1)
        return float(self.start @ values)

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures a policy [H, S, A]: its suboptimality first, then its value."""
        value = self.value(solution)
        return {"suboptimality": self.best() - value, "value": value}

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts a policy to plain data: for each step and state, the actions' probabilities."""
        return {
            f"step {h}, state {s}": {str(a): p for a, p in enumerate(row.tolist())}
            for h, step in enumerate(solution)
            for s, row in enumerate(step)
        }


def state_value(q: Tensor, kind: HumanValue) -> Tensor:
    """Returns the human's value of states from Q [..., A]: sum_a softmax(Q) Q, or log sum_a exp(Q)."""
    return q.logsumexp(-1) if kind == "logsumexp" else (q.softmax(-1) * q).sum(-1)


def human_choices(
    transitions: Tensor, reward: Tensor, horizon: int, discount: float, kind: HumanValue = "mean"
) -> Tensor:
    """Returns the choice probabilities [H, S, A] = softmax(Q_h), Q_h = reward + discount P V_{h+1}."""
    values, found = torch.zeros(len(reward), dtype=torch.double), []
    for _ in range(horizon):
        q = reward + discount * transitions @ values
        values = state_value(q, kind)
        found.append(q.softmax(-1))
    return torch.stack(found[::-1])


def offline_choices(
    *,
    trajectories: int = 200,
    states: int = 5,
    actions: int = 3,
    horizon: int = 4,
    discount: float = 0.9,
    size: float = 2.0,
    human_value: HumanValue = "mean",
    seed: int = 0,
) -> OfflineChoices:
    """Builds a random problem with a human's choices, and a table for features.

    trajectories: of the human; 0 takes the exact probabilities in place of counts.
    size: the standard deviation of the rewards: the human is the nearer to optimal, the larger they are.

    Raises:
        ChoiceError: a number of trajectories below 0, or fewer than one state or step or two actions.
    """
    if trajectories < 0 or min(states, horizon) < 1 or actions < 2:
        raise ChoiceError(
            "offline-choices: need trajectories >= 0, states >= 1, horizon >= 1 and actions >= 2, found "
            f"{trajectories}, {states}, {horizon} and {actions}"
        )
    g = torch.Generator().manual_seed(seed)
    transitions = torch.randn(states, actions, states, generator=g, dtype=torch.double).mul(1.5).softmax(-1)
    reward = size * torch.randn(states, actions, generator=g, dtype=torch.double)
    reward[:, 0] = 0
    start = torch.full((states,), 1 / states, dtype=torch.double)
    choices = human_choices(transitions, reward, horizon, discount, human_value)
    counts = torch.zeros(horizon, states, actions, states, dtype=torch.double)
    if trajectories == 0:
        visits = start
        for h in range(horizon):
            counts[h] = visits[:, None, None] * choices[h][..., None] * transitions
            visits = counts[h].sum((0, 1))
    else:
        state = torch.multinomial(start, trajectories, replacement=True, generator=g)
        for h in range(horizon):
            action = torch.multinomial(choices[h][state], 1, generator=g)[:, 0]
            after = torch.multinomial(transitions[state, action], 1, generator=g)[:, 0]
            one = torch.ones(trajectories, dtype=torch.double)
            counts[h].index_put_((state, action, after), one, accumulate=True)
            state = after
    features = torch.eye(states * actions, dtype=torch.double).view(states, actions, -1)
    return OfflineChoices(counts, features, discount, 0, transitions, reward, start, human_value)
