"""Small Markov decision processes, solved exactly: occupancy measures and values of policies."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class TabularMDP:
    """A tabular MDP: transitions [S, A, S], start [S], discount. Leading dimensions hold problems of one size."""

    transitions: Tensor
    start: Tensor
    discount: float

    def __post_init__(self) -> None:
        p, start = self.transitions, self.start
        if p.shape[-3] != p.shape[-1] or p.shape[:-2] != start.shape or not 0 <= self.discount < 1:
            raise ValueError(
                "TabularMDP: need transitions [..., S, A, S], start [..., S] and 0 <= discount < 1, found "
                f"{list(p.shape)}, {list(start.shape)} and {self.discount}"
            )
        if (p.sum(-1) - 1).abs().max() > 1e-9 or (start.sum(-1) - 1).abs().max() > 1e-9:
            raise ValueError("TabularMDP: transitions and start must sum to 1")

    def occupancy(self, policy: Float[Tensor, "*N S A"]) -> Float[Tensor, "*N S A"]:
        """Computes mu(s, a) = (1 - discount) sum_t discount^t P(s_t = s, a_t = a), which sums to 1, by a linear solve;
        differentiable."""
        moves = torch.einsum("...sa,...sat->...st", policy, self.transitions)
        one = torch.eye(moves.shape[-1], dtype=moves.dtype)
        system = one - self.discount * moves.transpose(-1, -2)
        states = torch.linalg.solve(system, ((1 - self.discount) * self.start).expand(moves.shape[:-1])[..., None])
        return states * policy

    def value(self, policy: Float[Tensor, "*N S A"], reward: Float[Tensor, "*N S A"]) -> Float[Tensor, "*N"]:
        """Computes the mean reward under the occupancy: (1 - discount) times the discounted return; differentiable."""
        return (self.occupancy(policy) * reward).sum((-1, -2))


def random_mdp(seed: int, states: int = 12, actions: int = 4, discount: float = 0.9, reach: int = 3) -> TabularMDP:
    """Samples an MDP: every action has `reach` successor states with random probabilities; the start is one state."""
    g = torch.Generator().manual_seed(seed)
    probs = -torch.rand(states, actions, states, generator=g, dtype=torch.double).log()
    kept = torch.rand(states, actions, states, generator=g).argsort(-1).argsort(-1) < reach
    probs = probs * kept
    start = torch.zeros(states, dtype=torch.double)
    start[0] = 1
    return TabularMDP(probs / probs.sum(-1, keepdim=True), start, discount)


def two_goals(length: int = 3, discount: float = 0.9) -> tuple[TabularMDP, Tensor]:
    """Builds a corridor with a goal at each end, equally far from the start in the middle; action 0 moves left, 1
    right. At a goal every action has reward 1 and leads to the absorbing last state, of reward 0. Returns the problem
    and its reward [S, A]."""
    states = 2 * length + 2  # the corridor, and the absorbing state
    rest, middle = states - 1, length
    transitions, reward = torch.zeros(states, 2, states, dtype=torch.double), torch.zeros(states, 2).double()
    for place in range(rest):
        for action, step in enumerate((-1, 1)):
            to = place + step
            goal = place in (0, rest - 1)
            transitions[place, action, rest if goal else to] = 1
            reward[place, action] = float(goal)
    transitions[rest, :, rest] = 1
    start = torch.zeros(states, dtype=torch.double)
    start[middle] = 1
    return TabularMDP(transitions, start, discount), reward
