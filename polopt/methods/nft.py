"""NFT: supervised learning on right answers, and on wrong ones through an implicit negative policy."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import NFTTerm, SequenceSum, Surrogate, TokenRatio
from polopt.sampling import MixedGroups, Rollouts


@method(
    paper=Paper(
        title="NFT: Bridging Supervised Learning and Reinforcement Learning in Math Reasoning",
        authors="Chen, Huayu and others",
        year=2025,
        arxiv="2505.18116",
    ),
    changes="RFT that also learns from wrong answers: their likelihood under the policy that the right ones imply.",
    room="objectives",
    tier="faithful",
)
def nft(
    *,
    group: int = 16,
    omega: Literal["dr-grpo", "grpo", "none"] = "dr-grpo",
    floor: float = 1.0,
    refills: int = 9,
) -> Algorithm:
    """With p the share of right answers in the group, y_i = 1 for a right one, R_it the ratio to the sampler,

        L = -(1 / (B C)) sum_it omega(p) [ y_i log R_it + (1 - y_i) log max((1 - p R_it) / (1 - p), floor) ]

    where the max keeps the gradient of its first argument. C is the batch's horizon. Unanimous groups are sampled
    again, as in DAPO. omega: 1 - p ("dr-grpo"), sqrt((1 - p) / p) ("grpo") or 1 ("none"). On policy the first has the
    gradient of Dr. GRPO, the second of GRPO with the population's standard deviation and the same reducer.

    Defaults are the published code's: omega 1 - p, floor 1, ratios of tokens, sums over tokens by a constant (1000
    there). It keeps p within [0.02, 0.98], which a group of 16 does by itself. The outcome is right if it reaches 1.
    """
    return Algorithm(
        sampling=Rollouts(group=group, select=[MixedGroups()], refills=refills),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(ratio=TokenRatio(), trust=NFTTerm(omega=omega, floor=floor), aggregate=SequenceSum()),
    )
