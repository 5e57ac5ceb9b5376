"""Learned rewards as bilevel problems: a policy maximises the reward, which is judged by the policy's trajectories."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from polopt.problems.bilevel import BilevelError, BilevelProblem


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RewardAlignment(BilevelProblem):
    """A reward r_x(s, a) = features x, a policy softmax(y) that maximises it, and an outer objective of the policy's
    trajectories tau, with R_x(tau) the sum of the reward over the pairs (s, a) of tau:

        g(x, y) = -E_tau~pi_y [ R_x(tau) - entropy log pi_y(tau) ] + ridge / 2 |y|^2,    f(x, y) = E_pi_y U_x

    A subclass defines U. The dynamics are deterministic and each state has its time, so that expectations are sums over
    all trajectories. With a sample, both are estimates from `rows` trajectories of the present policy. Derivatives of
    the estimates estimate the derivatives: a trajectory's weight p_y / p is 1 in value and the score in gradient.

    successors: [S, A] the next state, -1 at an end. State 0 is the start.
    features: [S A, N] of a pair of state and action. true: [S A] the true reward, which no solver sees.
    entropy: the weight of the policy's entropy. ridge: makes y* unique, of which the softmax sees no shift.
    rows: the trajectories of a sample; 0 takes the exact expectation.
    """

    successors: Tensor
    features: Tensor
    true: Tensor
    entropy: float = 0.5
    ridge: float = 1e-3
    rows: int = 0
    name: str = "reward-alignment"

    def __post_init__(self) -> None:
        S, A = self.successors.shape
        if self.features.shape[0] != S * A or self.true.shape != (S * A,):
            raise BilevelError(
                f"{self.name}: {S} states and {A} actions need features [{S * A}, N] and true [{S * A}], found "
                f"{list(self.features.shape)} and {list(self.true.shape)}"
            )
        if self.entropy <= 0 or self.ridge <= 0 or self.rows < 0 or self.rows % 2:
            raise BilevelError(
                f"{self.name}: need entropy > 0, ridge > 0 and an even number of rows, found {self.entropy}, "
                f"{self.ridge} and {self.rows}"
            )
        object.__setattr__(self, "visits", _visits(self.successors))

    visits: Tensor = dataclasses.field(init=False)  # [K, S A], how often each trajectory visits a pair

    def start(self) -> tuple[Tensor, Tensor]:
        pairs, size = self.features.shape
        return torch.zeros(size, dtype=torch.double), torch.zeros(pairs, dtype=torch.double)

    def log_probabilities(self, y: Tensor) -> Tensor:
        """Returns log pi_y(tau) of all trajectories [K]."""
        return self.visits @ y.view(self.successors.shape).log_softmax(-1).flatten()

    def returns(self, x: Tensor) -> Tensor:
        """Returns R_x(tau) of all trajectories [K]."""
        return self.visits @ (self.features @ x)

    def inner(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        log = self.log_probabilities(y)
        gain = self.returns(x) - self.entropy * log
        penalty = 0.5 * self.ridge * y @ y
        if draw is None or not self.rows:
            return penalty - log.exp() @ gain
        rows, weights, _ = self._sampled(log, draw)
        baseline = gain.detach()[rows].mean()
        return penalty - (weights * (gain[rows] - baseline)).mean() - baseline

    def outer(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        raise NotImplementedError

    def guess(self, x: Tensor) -> Tensor:
        """Returns the logits of the policy that is best without the ridge, by backward induction."""
        S, A = self.successors.shape
        reward, values = (self.features @ x).view(S, A), torch.zeros(S + 1, dtype=torch.double)
        q = torch.zeros(S, A, dtype=torch.double)
        for state in reversed(range(S)):  # a successor has a larger number; -1, the end, is the last value
            q[state] = (reward[state] + values[self.successors[state]]) / self.entropy
            values[state] = self.entropy * q[state].logsumexp(0)
        return (q - q.mean(-1, keepdim=True)).flatten()

    def true_return(self, y: Tensor) -> float:
        """Computes the expected true reward of the policy softmax(y)."""
        return float(self.log_probabilities(y).exp() @ (self.visits @ self.true))

    def best_return(self) -> float:
        """Returns the largest true return of any policy."""
        return float((self.visits @ self.true).max())

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures an x as `BilevelProblem.measure`, and the true return of the policy that solves it."""
        return {**super().measure(solution), "true_return": self.true_return(self.respond(solution))}

    def _sampled(self, log: Tensor, draw: int) -> tuple[Tensor, Tensor, torch.Generator]:
        """Samples trajectories [rows] of the policy, and returns their weights p_y / p [rows], of value 1."""
        g = torch.Generator().manual_seed(draw)
        rows = torch.multinomial(log.detach().exp(), self.rows, replacement=True, generator=g)
        return rows, (log[rows] - log.detach()[rows]).exp(), g


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PreferenceAlignment(RewardAlignment):
    """U_x of a pair of trajectories of the policy is the cross-entropy of the Bradley-Terry preference under R_x, where
    the labels are of one under the true reward. A sample has rows / 2 labelled pairs."""

    name: str = "preference-alignment"

    def outer(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        log, learned, true = self.log_probabilities(y), self.returns(x), self.visits @ self.true
        if draw is None or not self.rows:
            apart, odds = learned[:, None] - learned, (true[:, None] - true).sigmoid()
            losses = -odds * _log_sigmoid(apart) - (1 - odds) * _log_sigmoid(-apart)
            return log.exp() @ losses @ log.exp()
        rows, weights, g = self._sampled(log, draw)
        (i, j), both = rows.view(2, -1), weights.view(2, -1).prod(0)
        wins = torch.rand(len(i), generator=g, dtype=torch.double) < (true[i] - true[j]).sigmoid()
        losses = -_log_sigmoid(torch.where(wins, 1.0, -1.0) * (learned[i] - learned[j]))
        others = (losses.detach().sum() - losses.detach()) / max(len(losses) - 1, 1)  # a baseline of the other pairs
        return (both * losses - (both - 1) * others).mean()


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RewardDesign(RewardAlignment):
    """U_x of a trajectory is -utility, plus a price of the reward, price / 2 |x|^2. The utility is the true reward,
    which a designer observes but the policy does not.

    price: the price of a reward of unit size.
    """

    price: float = 0.01
    name: str = "reward-design"

    def outer(self, x: Tensor, y: Tensor, draw: int | None = None) -> Tensor:
        log, utility = self.log_probabilities(y), self.visits @ self.true
        cost = 0.5 * self.price * x @ x
        if draw is None or not self.rows:
            return cost - log.exp() @ utility
        rows, weights, _ = self._sampled(log, draw)
        u = utility[rows]
        others = (u.sum() - u) / max(len(u) - 1, 1)
        return cost - (weights * u - (weights - 1) * others).mean()


def preference_alignment(*, rows: int = 0, entropy: float = 0.5, seed: int = 0) -> PreferenceAlignment:
    """Builds a `PreferenceAlignment` on a random layered problem of 7 states, 3 actions and 27 trajectories."""
    successors, true = _layered(seed)
    return PreferenceAlignment(successors, torch.eye(len(true), dtype=torch.double), true, entropy=entropy, rows=rows)


def reward_design(*, rows: int = 0, entropy: float = 0.5, price: float = 0.01, seed: int = 0) -> RewardDesign:
    """Builds a `RewardDesign` on the problem of `preference_alignment`."""
    successors, true = _layered(seed)
    eye = torch.eye(len(true), dtype=torch.double)
    return RewardDesign(successors, eye, true, entropy=entropy, rows=rows, price=price)


def _layered(seed: int, layers: int = 3, width: int = 3, actions: int = 3) -> tuple[Tensor, Tensor]:
    """Returns successors [S, A] and a true reward [S A]: one start, then layers of `width` states."""
    g = torch.Generator().manual_seed(seed)
    states = 1 + (layers - 1) * width
    successors = torch.full((states, actions), -1)
    for state in range(states - width):
        layer = 0 if state == 0 else 1 + (state - 1) // width
        successors[state] = 1 + layer * width + torch.randperm(width, generator=g)[torch.arange(actions) % width]
    return successors, torch.randn(states * actions, generator=g, dtype=torch.double)


def _visits(successors: Tensor) -> Tensor:
    """Returns the visits [K, S A] of all trajectories from state 0 to an end.

    Raises:
        BilevelError: a state whose successor does not have a larger number, so that a trajectory might not end.
    """
    S, A = successors.shape
    if ((successors != -1) & (successors <= torch.arange(S)[:, None])).any() or successors.max() >= S:
        raise BilevelError("successors must be -1 or larger than the state's own number, and less than the states")
    open_paths: list[tuple[int, list[int]]] = [(0, [])]
    found = []
    while open_paths:
        state, pairs = open_paths.pop()
        for action in range(A):
            after, path = int(successors[state, action]), [*pairs, state * A + action]
            if after < 0:
                found.append(path)
            else:
                open_paths.append((after, path))
    visits = torch.zeros(len(found), S * A, dtype=torch.double)
    for row, path in enumerate(found):
        visits[row, path] = 1
    return visits


def _log_sigmoid(x: Tensor) -> Tensor:
    return torch.nn.functional.logsigmoid(x)
