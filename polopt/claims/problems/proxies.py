"""Proxies of a known correlation with the truth, and policies that optimise them near a base policy."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from polopt.problems.mdp import TabularMDP, random_mdp

Regulariser = Literal["sqrt_chi2", "chi2", "kl", "tv", "action_kl"]


@dataclasses.dataclass(frozen=True, eq=False)
class Proxies:
    """M problems [M, ...], each with a base policy [M, S, A], its occupancy, a true reward and a proxy, both of mean 0
    and variance 1 under it, and their correlation [M]."""

    mdp: TabularMDP
    base: Tensor
    occupancy: Tensor
    true: Tensor
    proxy: Tensor
    correlation: Tensor


def standardised(x: Tensor, weight: Tensor, off: Tensor | None = None) -> Tensor:
    """x with mean 0 and variance 1 under the weights [..., S, A], and orthogonal to `off` if that is given."""

    def mean(y: Tensor) -> Tensor:
        return (weight * y).sum((-1, -2), keepdim=True)

    x = x - mean(x)
    if off is not None:
        x = x - mean(x * off) * off
    return x / mean(x * x).sqrt()


def correlated_proxies(problems: int, seed: int = 0, states: int = 12, actions: int = 4) -> Proxies:
    """Random problems of discount 0.9 with correlations uniform in [0.3, 0.8]."""
    g = torch.Generator().manual_seed(seed)
    each = [random_mdp(1000 * seed + i, states, actions) for i in range(problems)]
    mdp = TabularMDP(torch.stack([m.transitions for m in each]), torch.stack([m.start for m in each]), 0.9)
    shape = (problems, states, actions)
    draws = [torch.randn(shape, generator=g, dtype=torch.double) for _ in range(3)]
    base = draws[0].softmax(-1)
    occupancy = mdp.occupancy(base)
    r = 0.3 + 0.5 * torch.rand(problems, generator=g, dtype=torch.double)
    true = standardised(draws[1], occupancy)
    rest = standardised(draws[2], occupancy, off=true)
    proxy = r[:, None, None] * true + (1 - r**2).sqrt()[:, None, None] * rest
    return Proxies(mdp, base, occupancy, true, proxy, r)


def loved_and_rare(seed: int, r: float, answers: int = 20, probs: float = 0.02) -> tuple[Tensor, Tensor, Tensor]:
    """A base policy over answers, a truth and a proxy, [answers], of mean 0, variance 1 and correlation r under it. The
    last answer is rare, and the proxy's error beyond the truth is to rate it as good; it is bad."""
    g = torch.Generator().manual_seed(seed)
    base = torch.cat([torch.randn(answers - 1, generator=g).double().softmax(0) * (1 - probs), torch.tensor([probs])])
    true = torch.cat([torch.randn(answers - 1, generator=g).double(), torch.tensor([-2.0])])
    loved = torch.zeros(answers, dtype=torch.double)
    loved[-1] = 1
    true = standardised(true[None], base[None])
    rest = standardised(loved[None], base[None], off=true)
    return base, true[0], (r * true + (1 - r**2) ** 0.5 * rest)[0]


def chi_square(occupancy: Tensor, base: Tensor) -> Tensor:
    """sum base (occupancy / base - 1)^2, over states and actions, with gradient."""
    # Where neither goes, after rounding, nothing differs.
    return torch.where(base > 0, (occupancy - base).square() / base.clamp(min=1e-300), 0).sum((-1, -2))


def distance(kind: Regulariser, policy: Tensor, occupancy: Tensor, problem: Proxies) -> Tensor:
    """Returns how far a policy is from the base, with gradient: between occupancies, or (action_kl) between what the
    two would do, averaged over the states that the policy visits."""
    if kind == "action_kl":
        return (occupancy * (policy.log() - problem.base.log())).sum((-1, -2))
    if kind == "kl":
        return (occupancy * (occupancy.log() - problem.occupancy.log())).sum((-1, -2))
    if kind == "tv":
        return (occupancy - problem.occupancy).abs().sum((-1, -2)) / 2
    chi2 = chi_square(occupancy, problem.occupancy)
    # The root's slope at 0 is without end, and the base policy stands there.
    return chi2 if kind == "chi2" else (chi2 + 1e-12).sqrt()


def optimised(problem: Proxies, kind: Regulariser, strengths: Tensor, steps: int = 80, rate: float = 0.3) -> Tensor:
    """[L, M, S, A] policies that maximise proxy - strength * distance, for each of L strengths, by Adam on the exact
    gradient from the base policy."""
    logits = problem.base.log().expand(len(strengths), *problem.base.shape).clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=rate)
    for _ in range(steps):
        policy = logits.softmax(-1)
        occupancy = problem.mdp.occupancy(policy)
        gain = (occupancy * problem.proxy).sum((-1, -2))
        loss = (strengths[:, None] * distance(kind, policy, occupancy, problem) - gain).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return logits.detach().softmax(-1)
