"""DAPO: four changes to GRPO for long answers."""

import torch

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.experience import Experience
from polopt.lab.claims import rare_arm, unanimous
from polopt.method import Finding, Paper, method
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

    over groups with both right and wrong answers. Sampling goes on until the batch is full, at most `refills`
    more times (verl's 10 batches in all; the paper sets no limit): then the batch is smaller. The filter
    looks at the outcome, since length penalties differ in every group. The outcome is taken to be 0 or 1.
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


@dapo.claim("The length penalty is the paper's, piece by piece.", baseline="the hard limit alone")
def penalty() -> Finding:
    lengths, paper = [16000, 16384, 18432, 20480, 20481], [0.0, 0.0, -0.5, -1.0, -1.0]
    mask = torch.arange(20481) < torch.tensor(lengths)[:, None]
    soft = OverlongPenalty(limit=20480, buffer=4096)(Experience(mask=mask))
    off = (soft - torch.tensor(paper)).abs().max().item()
    steps = torch.unique(soft).numel()
    return Finding(
        measured={"largest error": off, "levels": float(steps)},
        criterion="error < 1e-6 at 5 lengths; 3 levels, where a hard limit has 2",
        holds=off < 1e-6 and steps == 3,
    )


@dapo.claim("A higher upper clip lets one rare success grow more in 32 small steps on its batch.", baseline="clip 0.2")
def rare_success() -> Finding:
    higher, lower = (rare_arm(dapo(high=high, refills=99), steps=32) for high in (0.28, 0.2))
    return Finding(
        measured={"growth at 0.28": higher, "growth at 0.2": lower, "quotient": higher / lower},
        criterion="quotient >= 1.06 (that of the bounds is 1.28 / 1.2 = 1.067)",
        holds=higher / lower >= 1.06,
    )


@dapo.claim("No group of the batch is without gradient.", baseline="no filter, 70 % of prompts unanimous")
def dynamic() -> Finding:
    ours, plain = unanimous(dapo(group=8)), unanimous(dapo(group=8).but(**{"sampling.select": []}))
    measured = {"idle groups": ours[0], "unfiltered": plain[0], "gradient norm over unfiltered": ours[1] / plain[1]}
    return Finding(
        measured=measured,
        criterion="idle groups 0, unfiltered > 0.5; gradient norm > 1.5x",
        holds=ours[0] == 0 and plain[0] > 0.5 and ours[1] > 1.5 * plain[1],
    )
