"""REC: REINFORCE with the group mean as baseline, clipped and regularised for off-policy data."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import (
    ExponentialAdvantageWeight,
    ForwardKL,
    ImportanceWeight,
    PolicyGradient,
    RatioGate,
    Regulariser,
    SamplerKL,
    SequenceMean,
    SequenceRatio,
    Surrogate,
    TokenMean,
    TokenRatio,
    Weight,
)
from polopt.sampling import BalancedGroups, Rollouts

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

    clip: the range, see `objectives.RatioGate`; "gspo-one-side" takes the answer's ratio, and the mean over answers.
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
    pulls: list[Regulariser] = [SamplerKL(coefficient=opmd)] if opmd else []
    pulls += [ForwardKL(coefficient=asymre)] if asymre else []
    return Algorithm(
        sampling=Rollouts(group=group, select=[BalancedGroups()] if drop == "balance" else []),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=None),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=PolicyGradient(),
            weights=[*gates, *weights[weight]],
            aggregate=SequenceMean() if sequence else TokenMean(),
            regularise=pulls,
        ),
    )
