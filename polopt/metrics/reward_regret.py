"""Regret between two rewards: the loss under one of them that policies which the other prefers can cause."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from polopt.metrics.reward_distance import TabularRewardPair
from polopt.metrics.row_format import MetricDataError


@dataclasses.dataclass(frozen=True)
class RewardRegret:
    """Regret under R1 of trusting R2, divided by R1's range of returns max J1 - min J1; 0 if that is 0.

    worst: the maximum of J1(pi1) - J1(pi2) over all policies with J2(pi2) >= J2(pi1). of_best: the worst regret of a
    policy that is best under R2. policies: the number of deterministic policies that were evaluated.
    """

    worst: float
    of_best: float
    policies: int


def reward_regret(problem: TabularRewardPair, gamma: float, max_policies: int = 5000) -> RewardRegret:
    """Evaluates every deterministic policy under both rewards, and returns the exact regrets over all stationary
    policies, stochastic ones too: the attainable pairs (J1, J2) are the convex hull of those of deterministic ones.

    Raises:
        MetricDataError: more than `max_policies` deterministic policies.
    """
    J1, J2 = deterministic_returns(problem, gamma, max_policies)
    return RewardRegret(worst_regret(J1, J2), _regret_of_best(J1, J2), len(J1))


def number_of_policies(problem: TabularRewardPair) -> int:
    """Returns the number of deterministic policies: A to the number of states that are not terminal."""
    assert problem.terminal is not None
    return int(problem.transitions.shape[1] ** int((~problem.terminal).sum()))


def deterministic_returns(
    problem: TabularRewardPair, gamma: float, max_policies: int = 5000
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns J1 and J2 [policies], the discounted returns from the start of every deterministic policy.

    Raises:
        MetricDataError: more than `max_policies` of them.
    """
    choices = _deterministic(problem, max_policies)
    assert problem.start is not None
    S, state = len(problem), torch.arange(len(problem))
    system = torch.eye(S, dtype=torch.double) - gamma * problem.transitions[state, choices]
    expected = [(problem.transitions * r).sum(-1) for r in (problem.reward, problem.other)]
    values = torch.linalg.solve(system, torch.stack([r[state, choices] for r in expected], -1))
    J = torch.einsum("s,psr->rp", problem.start, values).numpy()
    return J[0], J[1]


def _deterministic(problem: TabularRewardPair, max_policies: int) -> Tensor:
    """Returns the action of every deterministic policy in every state, [policies, S]; 0 in terminal states."""
    count = number_of_policies(problem)
    if count > max_policies:
        raise MetricDataError(
            f"reward_regret: {count} deterministic policies are more than max_policies = {max_policies}; give a "
            "smaller problem, or `return_range` for a bound"
        )
    assert problem.terminal is not None
    going = (~problem.terminal).nonzero()[:, 0]
    choices = torch.zeros(count, len(problem), dtype=torch.long)
    choices[:, going] = torch.tensor(list(itertools.product(range(problem.transitions.shape[1]), repeat=len(going))))
    return choices


def occupancies(problem: TabularRewardPair, gamma: float, max_policies: int = 5000) -> Float[Tensor, "N S A"]:
    """Returns sum_t gamma^t P(s_t = s, a_t = a) of every deterministic policy, 0 in terminal states.

    Raises:
        MetricDataError: more than `max_policies` of them.
    """
    choices = _deterministic(problem, max_policies)
    assert problem.terminal is not None
    assert problem.start is not None
    S, A, _ = problem.transitions.shape
    system = torch.eye(S, dtype=torch.double) - gamma * problem.transitions[torch.arange(S), choices]
    visits = torch.linalg.solve(system.transpose(-1, -2), problem.start.expand(len(choices), S)[..., None])[..., 0]
    visits = torch.where(problem.terminal, 0.0, visits)
    return torch.zeros(len(choices), S, A, dtype=torch.double).scatter_(2, choices[..., None], visits[..., None])


def return_spread(
    problem: TabularRewardPair,
    gamma: float,
    order: float = 2.0,
    *,
    levelled: bool = False,
    max_policies: int = 5000,
) -> float:
    """Returns the largest max J - min J over policies, of all rewards [S, A, S] of norm 1:

        max over two policies of |(mu1 - mu2)(s, a) w(s, a, s')|, in the dual norm

    with mu the discounted occupancy, whose differences are largest between deterministic policies, and w = P(s'|s, a).

    order: p of the rewards' norm. levelled: of rewards that are the same for all successors, w = 1 / S.

    Raises:
        MetricDataError: more than `max_policies` deterministic policies.
    """
    mu = occupancies(problem, gamma, max_policies)
    p = problem.transitions
    weight = torch.full_like(p, 1 / len(problem)) if levelled else p
    dual = {1.0: float("inf"), 2.0: 2.0, float("inf"): 1.0}[order]
    points = (mu * torch.linalg.vector_norm(weight, dual, dim=-1)).flatten(1)
    return float(torch.cdist(points, points, p=dual, compute_mode="donot_use_mm_for_euclid_dist").max())


def worst_regret(J1: ArrayLike, J2: ArrayLike) -> float:
    """Returns max J1(x) - J1(y) over points x and y of the convex hull of (J1, J2) with J2(y) >= J2(x), over
    max J1 - min J1; 0 if that is 0.

    J1, J2: [policies] returns. The largest J1 at a level of J2 is concave, the least is convex, both with corners at
    points of the hull, so that the maximum is at two corners, or at one corner's level.
    """
    x, y = np.asarray(J1, float), np.asarray(J2, float)
    span, height = float(np.ptp(x)), float(np.ptp(y))
    if span <= 1e-12 * max(float(np.abs(x).max()), 1e-300):
        return 0.0
    if height <= 1e-12 * max(float(np.abs(y).max()), 1e-300):
        return 1.0
    most, least = _upper(y, x), _upper(y, -x)
    # Either the two extremes are in the order that R2 allows, or the best is at one level of R2.
    extremes = most[1].argmax(), least[1].argmax()
    if most[0][extremes[0]] <= least[0][extremes[1]]:
        return 1.0
    levels = np.union1d(most[0], least[0])
    gap = np.interp(levels, *most) + np.interp(levels, *least)
    return float(np.clip(gap.max() / span, 0, 1))


def _upper(at: NDArray[np.float64], height: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the corners, by increasing `at`, of the least concave function above all points."""
    order = np.lexsort((-height, at))
    corners: list[int] = []
    for i in order:
        if corners and at[i] == at[corners[-1]]:
            continue
        while len(corners) > 1:
            a, b = corners[-2:]
            rise = (height[b] - height[a]) * (at[i] - at[a])
            if rise > (height[i] - height[a]) * (at[b] - at[a]):
                break
            corners.pop()
        corners.append(int(i))
    return at[corners], height[corners]


def _regret_of_best(J1: NDArray[np.float64], J2: NDArray[np.float64]) -> float:
    span = float(np.ptp(J1))
    if span <= 1e-12 * max(float(np.abs(J1).max()), 1e-300):
        return 0.0
    best = J2.max() - J2 <= 1e-9 * max(float(np.abs(J2).max()), 1e-300)
    return float((J1.max() - J1[best].min()) / span)


def return_range(problem: TabularRewardPair, reward: Float[Tensor, "S A"], gamma: float) -> float:
    """Returns max J - min J over all policies, for an expected reward [S, A]."""
    return _best_return(problem, reward, gamma) + _best_return(problem, -reward, gamma)


def _best_return(problem: TabularRewardPair, reward: Float[Tensor, "S A"], gamma: float) -> float:
    """Returns max J over all policies, by policy iteration: an exact value of each policy, a better one after it."""
    assert problem.start is not None
    state, one = torch.arange(len(problem)), torch.eye(len(problem), dtype=torch.double)
    choice, before = reward.argmax(-1), -float("inf")
    while True:
        value = torch.linalg.solve(one - gamma * problem.transitions[state, choice], reward[state, choice])
        # Values of all states rise together; the sum stops where only rounding is left.
        if not value.sum().item() > before + 1e-12 * max(value.abs().sum().item(), 1e-300):
            return float(problem.start @ value)
        before = value.sum().item()
        choice = (reward + gamma * problem.transitions @ value).argmax(-1)
