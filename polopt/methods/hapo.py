"""HAPO: sampling temperature, advantages and clip bounds that depend on the entropy of each token."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import BoundedAdvantage, GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import EntropyAdvantage, EntropyClip, EntropyLevel, Surrogate, TokenMean, TokenRatio
from polopt.rewards import OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.sampling import EntropyTemperature, MixedGroups, Rollouts


@method(
    paper=Paper(
        title="From Uniform to Heterogeneous: Tailoring Policy Optimization to Every Token's Nature",
        authors="Liu, Zheng and others",
        year=2025,
        arxiv="2509.16591",
    ),
    changes="DAPO whose temperature, advantage and clip follow each token's entropy, and whose groups count tokens.",
    room="objectives",
    tier="faithful",
)
def hapo(
    *,
    group: int = 16,
    quantile: float = 0.8,
    heat: float = 0.05,
    advantage: float = 1.0,
    bounds: float = 1.0,
    clip: float = 0.2,
    refills: int = 15,
    compat: Literal["text", "released"] = "text",
) -> Algorithm:
    """With h_it in [-1, 1] the level of log H_it in the batch: 0 at its `quantile`, the ends at its extremes,

        T_it = 1 + heat h_it                                   while sampling, on the scale of the batch before
        A_i  = (R_i - m) / (s + 1e-6)                          m, s: mean and std of R over the group's tokens
        A_it = A_i (1 + advantage h_it)                        if h > 0 and r outside, or h <= 0 and r inside
                                                               (1 - low / 2, 1 + high / 2); A_i otherwise
        low_it, high_it = clip (1 + bounds max(-h, 0)), clip (1 + bounds max(h, 0))

    and PPO's clip of r_it to (1 - low_it, 1 + high_it), dual clip 10, token mean; R, filter and length penalty as in
    DAPO. A group in which some |A_i| reaches 5 takes GRPO's advantage; the release includes its padding, which has
    (0 - m) / s, so that with rewards far from 0 other groups fall back there. The temperature that a token was drawn at
    is recorded and divides the learner's logits again, so that r is 1 on policy; the learner's entropies are
    at that temperature, the release's over 1. h is taken over the whole optimiser batch, in the release over each
    micro-batch. compat "released": the release divides the low side by its negative minimum, so h is |h| everywhere and
    the rules for h <= 0 apply at the pivot alone; the text has h in [-1, 1]. The release's length buffer is 0.4 of its
    limit, ours DAPO's fifth; it advises to leave the penalty out where lengths fall. Overall temperature 1.
    """
    level = EntropyLevel(quantile=quantile, compat=compat)
    trust = EntropyClip(low=clip, high=clip, strength=bounds, dual=10.0, level=level)
    by_token = RelativeAdvantage(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))
    return Algorithm(
        sampling=Rollouts(
            group=group,
            adapt=EntropyTemperature(strength=heat, quantile=quantile, compat=compat) if heat else None,
            select=[MixedGroups()],
            refills=refills,
        ),
        reward=SumOfRewards(terms=[OutcomeReward(scale=2, shift=-1), OverlongPenalty()]),
        credit=BoundedAdvantage(credit=by_token, otherwise=RelativeAdvantage()),
        objective=Surrogate(
            ratio=TokenRatio(), trust=EntropyAdvantage(trust=trust, strength=advantage), aggregate=TokenMean()
        ),
    )
