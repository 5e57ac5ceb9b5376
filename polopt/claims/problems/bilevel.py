"""A reward that is learned from what a policy that follows it earns, on problems small enough to be exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from polopt.metrics import q_values
from polopt.problems.mdp import TabularMDP, two_goals
from polopt.solvers import LinearSolver, implicit_gradient


@dataclasses.dataclass(frozen=True, eq=False)
class Bilevel:
    """A problem with the environment's reward and a designer's hint, both [S, A]. An episode stops with probability
    1 - mdp.discount at each step. entropy: weight of each visited state's entropy in the inner update.

    theta: [S A] logits, flat. phi: [3 S A + 1], the shares of a table for `methods.barfi.AlignedReward` and the logit
    of a further discount for `methods.barfi.LearnedDiscount`."""

    mdp: TabularMDP
    primary: Tensor
    aux: Tensor
    entropy: float = 0.1

    def naive(self, shares: tuple[float, float, float] = (0.0, 1.0, 1.0), discount: float = 0.99) -> Tensor:
        """phi with the same shares everywhere: the naive sum, or the environment's reward alone with (0, 1, 0)."""
        each = torch.tensor(shares, dtype=torch.double)[:, None].repeat(1, self.primary.numel())
        return torch.cat([each.flatten(), torch.tensor([discount], dtype=torch.double).logit()])

    def update(self, theta: Tensor, phi: Tensor) -> Tensor:
        """The expected policy gradient, which inner steps follow,

            E sum_t grad log pi(a_t | s_t) sum_{j >= t} gamma_phi^(j - t) r_phi(s_j, a_j)  +  entropy sum_t grad H(s_t),

        with visits held fixed under the entropy. It is the gradient of nothing where gamma_phi < 1."""
        S, A = self.primary.shape
        log = theta.view(S, A).log_softmax(-1)
        policy, shares = log.exp(), phi[:-1].view(3, S, A)
        reward = shares[0] + shares[1] * self.primary + shares[2] * self.aux
        discount = self.mdp.discount * phi[-1].sigmoid()
        moves = torch.einsum("sa,sat->st", policy, self.mdp.transitions)
        values = torch.linalg.solve(torch.eye(S, dtype=log.dtype) - discount * moves, (policy * reward).sum(-1))
        worth = reward + discount * self.mdp.transitions @ values - self.entropy * log
        visits = self.mdp.occupancy(policy) / (1 - self.mdp.discount)
        return (visits * (worth - (policy * worth).sum(-1, keepdim=True))).flatten()

    def value(self, theta: Tensor) -> Tensor:
        """Expected return of the environment's reward in an episode, with gradient."""
        policy = theta.view(self.primary.shape).softmax(-1)
        return self.mdp.value(policy, self.primary) / (1 - self.mdp.discount)

    def best(self) -> float:
        """The most that any policy earns."""
        q = q_values(self.primary, self.mdp.transitions, self.mdp.discount)
        return float(self.mdp.start @ q.amax(-1))

    @torch.no_grad()
    def settle(self, theta: Tensor, phi: Tensor, steps: int, rate: float) -> Tensor:
        """theta after so many inner steps."""
        for _ in range(steps):
            theta = theta + rate * self.update(theta, phi)
        return theta

    def gradient(self, theta: Tensor) -> Tensor:
        """d value / d theta."""
        theta = theta.detach().requires_grad_()
        return torch.autograd.grad(self.value(theta), theta)[0]


def wrong_goal(hint_reward: float = 2.0, entropy: float = 0.1) -> Bilevel:
    """The environment's reward is 1 at the right end of a corridor, the hint's is `hint_reward` at the left one."""
    mdp, both = two_goals()
    right, left = both.clone(), both.clone()
    right[0], left[-2] = 0, 0
    return Bilevel(mdp, right, hint_reward * left, entropy)


def good_hint(length: int = 12, entropy: float = 0.02) -> Bilevel:
    """The environment's reward is 1 at the right end of a corridor, the hint's is 0.1 for every step to the right."""
    mdp, both = two_goals(length)
    primary, aux = both.clone(), torch.zeros_like(both)
    primary[0] = 0
    aux[: 2 * length, 1] = 0.1
    return Bilevel(mdp, primary, aux, entropy)


class Problem(Protocol):
    """The quantities of the outer loop, exactly or as estimates: see `Bilevel`."""

    @property
    def primary(self) -> Tensor: ...
    @property
    def naive(self) -> Callable[[], Tensor]: ...
    def update(self, theta: Tensor, phi: Tensor) -> Tensor: ...
    def gradient(self, theta: Tensor) -> Tensor: ...
    def settle(self, theta: Tensor, phi: Tensor, steps: int, rate: float) -> Tensor: ...


def align(
    problem: Problem,
    solver: LinearSolver,
    *,
    rounds: int,
    inner: int = 50,
    rate: float = 0.5,
    outer_rate: float = 0.1,
    price: float = 0.0,
    start: Tensor | None = None,
    watch: Callable[[Tensor, Tensor], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """BARFI: rounds of `inner` steps of the policy, which goes on from where it was, and one step of Adam on phi along
    d (value - price * gamma_phi) / d phi. Returns theta and phi. start: the first theta; None is the uniform policy.
    watch: sees both after every round."""
    theta = torch.zeros(problem.primary.numel(), dtype=torch.double) if start is None else start
    phi = problem.naive().requires_grad_()
    optimiser = torch.optim.Adam([phi], lr=outer_rate)
    for _ in range(rounds):
        theta = problem.settle(theta, phi.detach(), inner, rate)
        ascent = implicit_gradient(problem.update, problem.gradient(theta), theta, phi, solver)
        gamma = phi.detach()[-1].sigmoid()
        ascent[-1] -= price * gamma * (1 - gamma)
        phi.grad = -ascent
        optimiser.step()
        if watch is not None:
            watch(theta, phi.detach())
    return problem.settle(theta, phi.detach(), inner, rate), phi.detach()
