"""Sensitivity of the optimal policy to small changes of the reward.

The map from a reward to its optimal policies is continuous where one action is best by a margin, and discontinuous at
ties: the smallest tie-breaker moves all the mass. The value does not show this, so the measure is a distance between
policies. With an entropy bonus the optimal policy is a softmax, which changes at most in proportion to the reward.
Source: The Policy Cliff, arXiv:2507.20150, which proves the jumps and the continuity; the constants are polopt's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Stability(NamedTuple):
    """Distances between the optimal policies of two rewards. greedy: largest total variation, over states, between the
    two greedy policies, which share their mass among tied actions. worst: the same of any two greedy policies, where a
    tie
    may be broken anyhow: 0 or 1. soft: of the two policies with entropy bonus. bound: upper bound on `soft`. margin:
    least gap, over states, between the best action and the next, 0 at a tie. tied: states with a tie under the first
    reward. certain: the perturbation is less than half the margin, so that both rewards have the one greedy policy."""

    greedy: float
    worst: float
    soft: float
    bound: float
    margin: float
    tied: int
    certain: bool


def q_values(
    reward: Float[Tensor, "S A"],
    transitions: Float[Tensor, "S A S"] | None = None,
    discount: float = 0.0,
    alpha: float = 0.0,
    error: float = 1e-12,
) -> Float[Tensor, "S A"]:
    """Q*(s, a) = r + discount E V*(s'), by value iteration in float64 to an error of at most `error`, with

        V = max_a Q;  with alpha > 0  V = alpha log sum_a exp(Q / alpha), the best of return plus alpha times entropy.

    transitions: None is a problem of one step, where Q is the reward.

    Raises:
        ValueError: a discount outside [0, 1), or a negative alpha.
    """
    if not 0 <= discount < 1 or alpha < 0:
        raise ValueError(f"q_values: need 0 <= discount < 1 and alpha >= 0, found {discount} and {alpha}")
    q = reward = reward.double()
    if transitions is None or discount == 0:
        return q
    transitions = transitions.double()
    while True:
        best = q.amax(-1) if alpha == 0 else alpha * (q / alpha).logsumexp(-1)
        following = reward + discount * torch.einsum("sat,t->sa", transitions, best)
        change, q = (following - q).abs().max(), following
        # Each iteration shrinks the error by the discount; an error below rounding cannot be reached.
        if change * discount / (1 - discount) <= max(error, 4 * torch.finfo(q.dtype).eps * float(q.abs().max())):
            return q


def policy_stability(
    reward: Float[Tensor, "*S A"],
    perturbation: Float[Tensor, "*S A"],
    alpha: float,
    *,
    transitions: Float[Tensor, "S A S"] | None = None,
    discount: float = 0.0,
    tolerance: float = 1e-9,
) -> Stability:
    """Compares the optimal policies of `reward` and of `reward + perturbation`, without and with alpha * entropy.

    reward: [A] of one choice, or [S, A] by state. transitions, discount: the dynamics, None: one step.
    tolerance: actions whose Q is that close to the best are tied with it. Larger than `q_values`' error, smaller than a
    difference that matters.

        bound = tanh(|perturbation| / ((1 - discount) 2 alpha)),  |.| the largest entry

    exactly: two softmaxes whose logits differ by numbers within a range D are at most tanh(D / 4) apart, and D is at
    most twice the largest difference of Q over alpha. In L1, twice the total variation, it is below
    |perturbation| / ((1 - discount) alpha).

    Raises:
        ValueError: shapes that differ, alpha <= 0, a negative tolerance, or as `q_values`.
    """
    if reward.shape != perturbation.shape or reward.ndim not in (1, 2):
        raise ValueError(
            "policy_stability: reward and perturbation need one shape, [A] or [S, A], found "
            f"{list(reward.shape)} and {list(perturbation.shape)}"
        )
    if alpha <= 0 or tolerance < 0:
        raise ValueError(f"policy_stability: need alpha > 0 and tolerance >= 0, found {alpha} and {tolerance}")
    before = torch.atleast_2d(reward.double())
    after = before + torch.atleast_2d(perturbation.double())
    hard = [q_values(r, transitions, discount) for r in (before, after)]
    soft = [q_values(r, transitions, discount, alpha) / alpha for r in (before, after)]
    best = [q >= q.amax(-1, keepdim=True) - tolerance for q in hard]
    even = [b.double() / b.sum(-1, keepdim=True) for b in best]
    free = (best[0] | best[1]).sum(-1) > 1  # two policies can be apart unless both have one and the same action
    size = float((after - before).abs().max()) / (1 - discount)
    margin = _margin(hard[0], best[0])
    return Stability(
        greedy=_total_variation(*even),
        worst=float(free.any()),
        soft=_total_variation(*(q.softmax(-1) for q in soft)),
        bound=math.tanh(size / (2 * alpha)),
        margin=margin,
        tied=int((best[0].sum(-1) > 1).sum()),
        certain=size < margin / 2,
    )


def _total_variation(one: Tensor, two: Tensor) -> float:
    return (one - two).abs().sum(-1).max().item() / 2


def _margin(q: Tensor, best: Tensor) -> float:
    if q.shape[-1] == 1:
        return math.inf
    top = q.topk(2, -1).values
    return torch.where(best.sum(-1) > 1, 0, top[:, 0] - top[:, 1]).min().item()
