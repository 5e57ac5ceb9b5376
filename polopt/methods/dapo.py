"""DAPO: GRPO with four changes for long answers."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.rewards import OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.sampling import MixedGroups, Rollouts


@method(
    paper=Paper(
        title="DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
        authors="Yu, Qiying and others",
        year=2025,
        arxiv="2503.14476",
    ),
    changes="GRPO with a higher upper clip, no unanimous groups, a mean over tokens, and a soft limit on length.",
    room="objectives",
    tier="proven",
)
def dapo(*, group: int = 16, low: float = 0.2, high: float = 0.28, refills: int = 9) -> Algorithm:
    """R_i = +1 or -1, plus OverlongPenalty(|y_i|); A_i = (R_i - mean_g R) / (std_g R + eps); and

        L = (1 / sum_i |y_i|) sum_it max(-A_i r_it, -A_i clip(r_it, 1 - low, 1 + high))

    over groups with both right and wrong answers. Sampling continues until the batch is full, at most `refills`
    more times (verl's 10 batches in all; the paper sets no limit): then the batch is smaller. The filter
    reads the outcome, since length penalties differ in every group. The outcome is assumed to be 0 or 1.
    OverlongPenalty's limit is the batch's horizon, its buffer a fifth, as 4,096 of 20,480. No KL, hence no reference.
    verl's recipe for DAPO also bounds the terms of negative advantages (clip_ratio_c 10), which the paper does not;
    `.but(**{"objective.trust.dual": 10.0})` is the recipe's. The paper's formula divides by the tokens of each group
    and averages over prompts; verl, and we, by the batch's.
    """
    return Algorithm(
        sampling=Rollouts(group=group, select=[MixedGroups()], refills=refills),
        reward=SumOfRewards(terms=[OutcomeReward(scale=2, shift=-1), OverlongPenalty()]),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(ratio=TokenRatio(), trust=Clip(low=low, high=high), aggregate=TokenMean()),
    )
