"""CANON: each half of a group, split by entropy or length, is the baseline of the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt, single_row_groups
from polopt.features.rows import MeanEntropy, setting_values
from polopt.fields import check_shape
from polopt.method import Paper, method
from polopt.objectives import Clip, SequenceSum, Surrogate, TokenRatio
from polopt.part import Part
from polopt.sampling import Rollouts
from polopt.schedules import Schedule
from polopt.situation import Situation


@method(
    paper=Paper(
        title="Conditional Advantage Estimation for Reinforcement Learning in Large Reasoning Models",
        authors="Chen, Guanxu and others",
        year=2025,
        arxiv="2509.23962",
    ),
    changes="Dr. GRPO whose baseline is the mean of the group's other half, by a measure such as entropy or length.",
    room="credit",
    tier="faithful",
)
def canon(
    *,
    group: int = 16,
    by: RowFeature = MeanEntropy(),  # noqa: B008
    mu: float | Schedule | RowFeature = 1.0,
    upper: float = 1.0,
    lower: float = 1.0,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = 3.0,
    length: int | None = None,
) -> Algorithm:
    """A = mu A_inter + (1 - mu) A_intra: R against the mean of the group's other half and of its own; see
    `methods.canon.HalfGroupAdvantage`. Sum over tokens, mean over answers, over a constant `length` (None: the
    horizon), as Dr. GRPO. dual: the term of a negative advantage is at most -dual A, as in the authors' program (None:
    no such bound).

    mu: a number, a `Schedule` (cosine with restarts: knots and shapes), or `SuccessRate()` of the batch; with
    `invert=True` the other way round. by: `MeanEntropy()` of the sampler or `DecisionCount()`.

    upper, lower: the authors' alpha multiplies the returns of one half where halves are compared: of the lower half by
    entropy (lower=alpha), of the long one by length (upper=alpha). Their code's `_lambda` is the paper's mu.

    Answers tied at the border count in both halves, by their share; the authors' stable sort puts those sampled
    first in the lower half. mu = 1/2 on an even group is Dr. GRPO.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=HalfGroupAdvantage(by=by.but(), mu=mu.but() if isinstance(mu, Part) else mu, upper=upper, lower=lower),
        objective=Surrogate(
            ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=SequenceSum(length=length)
        ),
    )


class HalfGroupAdvantage(Credit):
    """A = mu * inter + (1 - mu) * intra, with each group halved by a measure; m_U, m_L are the halves' mean returns:

        inter: upper * R - lower * m_L in the upper half, lower * R - upper * m_U in the lower
        intra: R - m_U in the upper half,                 R - m_L in the lower

    by: the measure that splits a group; the lower half has floor(n / 2) of n rows. mu: a number, a schedule, or a
    number for each row. upper, lower: factors on the halves' returns where halves are compared; the larger one
    favours its half.

    Tied rows at the border count in both halves, by their share (`upper_share`). A group of equal rows is therefore
    centred on its mean, and a group of one has advantage 0. Equal halves and mu = 1/2 with
    factors 1 give R minus the group's mean. Source: CANON, arXiv:2509.23962.
    """

    by: RowFeature
    mu: float | Schedule | RowFeature = 1.0
    upper: float = 1.0
    lower: float = 1.0
    within: Grouping = SamePrompt()

    reads = frozenset({"reward"})

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within, situation)

    def forward(self, experience: Experience) -> Tensor:
        returns, group = experience.returns().detach(), self.within(experience)
        measured = check_shape(self.by(experience), returns, self.by)
        share = upper_share(measured.double(), group).to(returns.dtype)
        high, low = _mean(returns, share, group), _mean(returns, 1 - share, group)
        inter = share * (self.upper * returns - self.lower * low)
        inter = inter + (1 - share) * (self.lower * returns - self.upper * high)
        inter = torch.where(ops.group_size(group) > 1, inter, 0)
        intra = share * (returns - high) + (1 - share) * (returns - low)
        mu = setting_values(self.mu, experience)
        advantage = (mu * inter + (1 - mu) * intra).to(returns.dtype)
        return torch.where(experience.mask, advantage[:, None], 0)


def upper_share(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Returns 1 for rows in the upper half of their group by x, 0 in the lower, which holds floor(n / 2) of n rows.

    Tied rows at the border belong to both halves, each by the fraction of them above it, so that the order of the
    rows has no influence.
    """
    below, level = ops.places(x, group)
    above = below + level - ops.group_size(group) // 2
    return above.clamp(min=0).minimum(level).to(x.dtype) / level


def _mean(x: Tensor, weight: Tensor, group: Tensor) -> Tensor:
    """Computes the weighted mean of each row's group; exactly x where the group is all equal, whatever the weights."""
    least = ops.group_least(x, group)
    mass = ops.group_sum(weight, group)
    return least + torch.where(mass > 0, ops.group_sum(weight * (x - least), group) / mass, 0)
