"""Decisions that must be justified: a process whose states are described by features, and a judge's preferences."""

from __future__ import annotations

import dataclasses
import functools

import torch
from torch import Tensor

from polopt.errors import UserError
from polopt.problems.mdp import TabularMDP


class JustificationError(UserError, ValueError):
    """Sizes or numbers of a problem of justified decisions contradict each other."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class JustifiedDecisions:
    """Logged decisions in a process, and preferences of a judge between the actions of a state.

    features: [S, n] of each state: the evidence that a decision is justified by.
    preference: [S, A, A] the probability that the judge, who sees the state, prefers the first action to the second.
    baseline: [S] the action of the policy that decisions are compared with.
    counts: [S, A, S] how often each (state, action, next state) was logged; fractions are allowed.
    process: transitions, start and discount. reward: [S, A] the environment's.
    weights: [A, n] the judge's utility of an action, features @ weights; it is what measures know, not what is logged.

    Raises:
        JustificationError: sizes that do not fit, a baseline that is no action, negative counts, preferences of a pair
            that do not sum to 1.
    """

    features: Tensor
    preference: Tensor
    baseline: Tensor
    counts: Tensor
    process: TabularMDP
    reward: Tensor
    weights: Tensor
    actions: tuple[str, ...] = ()
    name: str = "justified-decisions"
    unit: str = "reward"

    def __post_init__(self) -> None:
        S, A = self.reward.shape
        sizes = {
            "features": (self.features.shape[:1], (S,)),
            "preference": (self.preference.shape, (S, A, A)),
            "baseline": (self.baseline.shape, (S,)),
            "counts": (self.counts.shape, (S, A, S)),
            "transitions": (self.process.transitions.shape, (S, A, S)),
            "weights": (self.weights.shape, (A, self.features.shape[-1])),
        }
        for name, (found, expected) in sizes.items():
            if tuple(found) != expected:
                raise JustificationError(
                    f"{self.name}: reward [S, A] = {[S, A]} needs {name} of shape {list(expected)}, found {list(found)}"
                )
        if not ((self.baseline >= 0) & (self.baseline < A)).all():
            raise JustificationError(f"{self.name}: baseline must be actions from 0 to {A - 1}")
        if (self.counts < 0).any() or (self.preference + self.preference.mT - 1).abs().max() > 1e-9:
            raise JustificationError(
                f"{self.name}: need counts of at least 0, and preferences of a pair that sum to 1, found "
                f"{float(self.counts.min()):g} and {float((self.preference + self.preference.mT).max()):g}"
            )

    @property
    def utility(self) -> Tensor:
        """Returns the judge's utility of each action, [S, A]."""
        return self.features @ self.weights.T

    @functools.cached_property
    def best(self) -> float:
        """Returns the largest mean reward of any policy."""
        process, q = self.process, torch.zeros_like(self.reward)
        steps = 1 + round(30 / (1 - process.discount))  # until discount^steps < 1e-13
        for _ in range(steps):
            q = self.reward + process.discount * process.transitions @ q.amax(-1)
        greedy = torch.nn.functional.one_hot(q.argmax(-1), q.shape[-1]).to(q)
        return float(process.value(greedy, self.reward))

    def preferred(self, policy: Tensor) -> float:
        """Returns the fraction of a policy's decisions, of those that differ from the baseline's, whose utility is the
        higher one; 0.5 if none differs."""
        visits = self.process.occupancy(policy)
        visits = visits * (1 - torch.nn.functional.one_hot(self.baseline, visits.shape[-1]))
        better = self.utility > self.utility.gather(1, self.baseline[:, None])
        return float((visits * better).sum() / visits.sum()) if visits.sum() > 1e-12 else 0.5

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures a policy [S, A]: how far its mean reward is from the best, the mean reward, and the fraction of its
        decisions that the judge, who sees the whole state, prefers to the baseline's."""
        value = float(self.process.value(solution, self.reward))
        return {"regret": self.best - value, "value": value, "preferred": self.preferred(solution)}

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts a policy to plain data: for each state the actions' probabilities."""
        names = self.actions or tuple(map(str, range(solution.shape[-1])))
        return {f"state {s}": dict(zip(names, row, strict=True)) for s, row in enumerate(solution.tolist())}


def justified_decisions(
    *,
    states: int = 40,
    features: int = 10,
    actions: int = 4,
    logged: int = 4000,
    discount: float = 0.9,
    spread: float = 0.1,
    certainty: float = 2.0,
    seed: int = 0,
) -> JustifiedDecisions:
    """Builds a random process in which several actions of a state do nearly the same good, and a judge with a linear
    utility of its own. The log is of a policy that acts at random, the baseline is one of the good actions.

    logged: transitions; 0 takes the exact probabilities in place of counts.
    spread: the standard deviation of an action's reward around 1 for a good action and 0 for a bad one.
    certainty: preferences are sigmoid(certainty * difference of utilities).

    Raises:
        JustificationError: fewer than one state or feature or two actions, or numbers below 0.
    """
    if min(states, features) < 1 or actions < 2 or logged < 0 or min(spread, certainty) < 0:
        raise JustificationError(
            "justified-decisions: need states >= 1, features >= 1, actions >= 2, logged >= 0, spread >= 0 and "
            f"certainty >= 0, found {states}, {features}, {actions}, {logged}, {spread} and {certainty}"
        )
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(states, features, generator=g, dtype=torch.double)
    weights = torch.randn(actions, features, generator=g, dtype=torch.double) / features**0.5
    utility = x @ weights.T
    # Every action leads on alike, so that what is good is told by the rewards.
    moves = torch.randn(states, 1, states, generator=g, dtype=torch.double).mul(1.5).softmax(-1)
    transitions = moves.expand(-1, actions, -1).contiguous()
    rank = torch.rand(states, actions, generator=g).argsort(-1)
    good = (rank < (actions + 1) // 2).double()
    reward = good + spread * torch.randn(states, actions, generator=g, dtype=torch.double)
    baseline = torch.where(good > 0, torch.rand(states, actions, generator=g).double(), -1).argmax(-1)
    odds = transitions / (states * actions)
    if logged:
        drawn = torch.multinomial(odds.flatten(), logged, replacement=True, generator=g)
        odds = drawn.bincount(minlength=odds.numel()).double().view_as(odds)
    start = torch.full((states,), 1 / states, dtype=torch.double)
    return JustifiedDecisions(
        features=x,
        preference=torch.sigmoid(certainty * (utility[:, :, None] - utility[:, None])),
        baseline=baseline,
        counts=odds,
        process=TabularMDP(transitions, start, discount),
        reward=reward,
        weights=weights,
    )
