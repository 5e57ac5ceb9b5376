"""REC: REINFORCE with the group mean as baseline, clipped and regularised for off-policy data."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import (
    ExponentialAdvantageWeight,
    ForwardKL,
    ImportanceWeight,
    PolicyGradient,
    Regulariser,
    SamplerKL,
    SequenceMean,
    SequenceRatio,
    Surrogate,
    TokenMean,
    TokenRatio,
    Weight,
)
from polopt.objectives.parts import Ratio
from polopt.sampling import Rollouts
from polopt.sampling.parts import Select

Clipping = Literal["none", "one-side", "two-side", "ring", "gspo-one-side"]
SIDES: dict[Clipping, Literal["one", "two", "ring"]] = {
    "one-side": "one",
    "gspo-one-side": "one",
    "two-side": "two",
    "ring": "ring",
}
Weighting = Literal["none", "importance", "truncated", "gspo", "advantage"]


@method(
    paper=Paper(
        title="Group-Relative REINFORCE Is Secretly an Off-Policy Algorithm: "
        "Demystifying Some Myths About GRPO and Its Friends",
        authors="Yao, Chaorui and others",
        year=2025,
        arxiv="2509.24203",
    ),
    changes="REINFORCE relative to the group's mean; a clip, a weight, a regulariser and a filter, each on its own.",
    room="objectives",
    tier="faithful",
)
def rec(
    *,
    group: int = 8,
    clip: Clipping = "one-side",
    weight: Weighting = "none",
    low: float = 0.2,
    high: float = 0.2,
    outer: tuple[float, float] = (0.6, 2.0),
    opmd: float = 0.0,
    asymre: float = 0.0,
    drop: Literal["none", "balance"] = "none",
) -> Algorithm:
    """A_i = R_i - mean_g R and, with r the ratio to the sampler, without gradient,

        L = (1 / sum_i |y_i|) sum_it [ -1[r_it in range] w_it A_i logp_it + (opmd/2) log^2 r_it - asymre logp_it ]

    clip: the range, see `methods.rec.RatioGate`; "gspo-one-side" takes the answer's ratio, and the mean over answers.
    weight: w is 1, r, r within [1 - outer[0], 1 + outer[1]], the answer's ratio, or exp(A). drop "balance": a group
    loses its surplus of answers below the mean before credit is given.

    The default is what the paper recommends: the clip, no importance weight. clip "one-side" and weight "importance"
    have PPO's gradient. opmd is Kimi's coefficient, twice that of the published code; asymre is AsymRE with its
    baseline lowered by so much. The code drops answers by giving them advantage 0, so that they still count in the
    mean over tokens; ours are gone. It drops by lot, we drop the later ones, which for rollouts is the same.
    """
    sequence = clip == "gspo-one-side"
    gates: list[Weight] = []
    if clip != "none":
        gates = [
            RatioGate(
                side=SIDES[clip], low=low, high=high, outer=outer, ratio=SequenceRatio() if sequence else TokenRatio()
            )
        ]
    weights: dict[Weighting, list[Weight]] = {
        "none": [],
        "importance": [ImportanceWeight()],
        "truncated": [ImportanceWeight(low=outer[0], high=outer[1])],
        "gspo": [ImportanceWeight(ratio=SequenceRatio())],
        "advantage": [ExponentialAdvantageWeight()],
    }
    regularisers: list[Regulariser] = [SamplerKL(coefficient=opmd)] if opmd else []
    regularisers += [ForwardKL(coefficient=asymre)] if asymre else []
    return Algorithm(
        sampling=Rollouts(group=group, select=[BalancedGroups()] if drop == "balance" else []),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=None),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=PolicyGradient(),
            weights=[*gates, *weights[weight]],
            aggregate=SequenceMean() if sequence else TokenMean(),
            regularise=regularisers,
        ),
    )


class RatioGate(Weight):
    """1 where a decision counts, 0 where its ratio r to the behaviour policy is outside the allowed range.

    side: "one" excludes A > 0 with r > 1 + high and A < 0 with r < 1 - low, whose gradient PPO's clip removes. "two"
    excludes every r outside [1 - low, 1 + high]. "ring" is "two", but includes decisions so far on the other side
    that their gradient points back: A > 0 with r <= 1 - outer[0], A < 0 with r >= 1 + outer[1]. ratio: a decision's, or
    that of its row. Source: REC, arXiv:2509.24203.
    """

    side: Literal["one", "two", "ring"] = "one"
    low: float = 0.2
    high: float = 0.2
    outer: tuple[float, float] = (0.6, 2.0)
    ratio: Ratio = TokenRatio()

    reads = frozenset({"advantage"})

    def setup(self) -> None:
        if not 0 <= self.low <= 1 or self.high < 0:
            raise ValueError(f"methods.rec.RatioGate: need 0 <= low <= 1 and high >= 0, found {self.low}, {self.high}")
        if self.side == "ring" and not (self.low <= self.outer[0] <= 1 and self.high <= self.outer[1]):
            raise ValueError(
                f"methods.rec.RatioGate: outer must lie outside low and high, with outer[0] <= 1, found {self.outer}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        ratio, advantage = self.ratio(experience, evaluation).exp(), experience.advantage
        above, below = ratio > 1 + self.high, ratio < 1 - self.low
        good, bad = advantage > 0, advantage < 0
        if self.side == "one":
            return (~((above & good) | (below & bad))).to(ratio.dtype)
        back = (good & (ratio <= 1 - self.outer[0])) | (bad & (ratio >= 1 + self.outer[1]))
        return (~(above | below) | (back & (self.side == "ring"))).to(ratio.dtype)


class BalancedGroups(Select):
    """Keeps, of a group's rows below its mean outcome, at most as many as there are rows not below it.

    The earlier rows stay: rollouts of one prompt are exchangeable, so their order is as good as a random draw. A credit
    that compares with the group's mean uses the rows that are left. Source: REC, arXiv:2509.24203.
    """

    tags = frozenset({"filter=outcome"})
    reads = frozenset({"outcome", "group"})

    def forward(self, experience: Experience) -> Experience:
        group, below = experience.group, experience.outcome < ops.group_mean(experience.outcome, experience.group)
        index, size = ops.group_index(group)
        order = index.argsort(stable=True)
        # Number of rows below the mean in the same group up to each row, itself included.
        passed = below[order].cumsum(0)
        earlier = torch.cat([passed.new_zeros(1), passed])[size.cumsum(0) - size]
        place = torch.empty_like(passed).index_copy(0, order, passed - earlier[index[order]])
        room = ops.group_sum((~below).to(experience.outcome), group)
        return experience[~below | (place <= room)]
