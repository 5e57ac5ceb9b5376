"""BNPO: advantages normalised by a Beta density fitted to the prompts' success rates."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.credit.parts import Scale
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt
from polopt.fields import ExperienceError
from polopt.method import Paper, method
from polopt.objectives import Clip, SequenceSum, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="BNPO: Beta Normalization Policy Optimization",
        authors="Xiao, Changyi and Zhang, Mengdi and Cao, Yixin",
        year=2025,
        arxiv="2506.02864",
    ),
    changes="Dr. GRPO in units of a Beta density of each prompt's success rate, fitted to the batch.",
    room="credit",
    tier="faithful",
)
def bnpo(
    *,
    group: int = 16,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = 10.0,
    worst: float = 0.0,
    best: float = 1.0,
    length: int | None = None,
) -> Algorithm:
    """A_i = (R_i - p_q) min(1 / f(p_q), 1e6), p_q the mean of prompt q's group, f the density Beta(alpha, beta) with

        alpha = max(1, 1 + a / 3),   beta = max(1, 1 + b / 3)

    and Beta(a, b) fitted to the batch's {p_q} by moments; see `methods.bnpo.BetaScale`. Among densities f it has the
    least E[p (1 - p) / f(p)^2], the advantages' expected square. PPO's clip, bounded by `dual` for negative advantages,
    and a sum over tokens, mean over answers, over a constant `length` (None: the horizon; the authors' code has 1).

    Rewards lie in [worst, best] and are rescaled to [0, 1]; others are refused. A group of one has A = 0 here; the
    authors' code gives it mean 0, and so A = R min(1 / f(0), 1e6): up to a million times its reward. For a reward of
    several parts they average the parts' advantages: a `credit.WeightedSum`.

    TRL's loss_type="bnpo" is something else: GRPO with a mean over the tokens of each local batch.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=BetaScale(low=worst, high=best)),
        objective=Surrogate(
            ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=SequenceSum(length=length)
        ),
    )


# The paper's code never multiplies an advantage by more than a million.
LEAST = 1e-6


# Below this variance rates differ by rounding only, and the density would be a spike of rounding errors.
LEVEL = 1e-12


def normaliser(rates: Tensor) -> tuple[float, float]:
    """Computes the Beta(alpha, beta) of least expected gradient variance for the success rates [Q] of Q prompts.

    With Beta(a, b) fitted to the rates by their mean m and sample variance v, k = m (1 - m) / v - 1:

        a = k m,   b = k (1 - m),   alpha = max(1, 1 + a / 3),   beta = max(1, 1 + b / 3)

    Fewer than two prompts, or rates that are all equal, determine no fit: alpha = beta = 1, the uniform density.
    """
    if len(rates) < 2:
        return 1.0, 1.0
    mean, variance = float(rates.mean()), float(rates.var())
    if variance < LEVEL:
        return 1.0, 1.0
    k = mean * (1 - mean) / variance - 1
    return max(1.0, 1 + k * mean / 3), max(1.0, 1 + k * (1 - mean) / 3)


def density(rates: Tensor, alpha: float, beta: float) -> Tensor:
    """Computes the density of Beta(alpha, beta) at each rate in [0, 1], for alpha, beta >= 1."""
    size = math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta)
    return (torch.xlogy(alpha - 1, rates) + torch.xlogy(beta - 1, 1 - rates) - size).exp()


class BetaScale(Scale):
    """(high - low) * max(f(p), 1e-6), with p the group's mean return rescaled to [0, 1] and f a Beta density.

    low, high: the least and the greatest possible return. shape: alpha and beta of f; None fits them to the
    batch's groups, each counted once (`normaliser`). (1, 1) is the constant 1. (3/2, 3/2) is 8 / pi times the
    population's standard deviation, for returns of 0 and 1. within: the grouping.

    Divided by it, R - mean becomes (R' - p) * min(1 / f(p), 1e6) of the rescaled R'. At p = 0 or 1, f may be 0, and
    so is R' - p. Source: BNPO, arXiv:2506.02864.

    Raises:
        ExperienceError: a return outside [low, high].
    """

    low: float = 0.0
    high: float = 1.0
    shape: tuple[float, float] | None = None
    within: Grouping = SamePrompt()

    def setup(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"methods.bnpo.BetaScale: need low < high, found {self.low} and {self.high}")
        if self.shape is not None and min(self.shape) < 1:
            raise ValueError(f"methods.bnpo.BetaScale: shape needs alpha, beta >= 1, found {self.shape}")

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        if len(returns) and (returns.min() < self.low or returns.max() > self.high):
            raise ExperienceError(
                f"methods.bnpo.BetaScale needs returns in [{self.low:g}, {self.high:g}], found "
                f"{float(returns.min()):g} to "
                f"{float(returns.max()):g}; set low and high to the least and the greatest possible return"
            )
        index, count = ops.group_index(self.within(experience))
        mean = ops.group_mean(returns.double(), index)
        rates = ((mean - self.low) / (self.high - self.low)).clamp(0, 1)  # rounding may exceed the bounds
        per_group = rates.new_zeros(len(count)).index_copy(0, index, rates)
        alpha, beta = self.shape or normaliser(per_group)
        return ((self.high - self.low) * density(rates, alpha, beta).clamp(min=LEAST)).to(returns.dtype)
