"""ConciseR: two stages, accuracy first; then a length reward on prompts whose answers are all right."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.features.masks import SolvedGroups
from polopt.method import Paper, method
from polopt.methods.dapo import dapo
from polopt.objectives import EntropyBonus
from polopt.rewards import ConditionalReward, LinearLength, OutcomeReward, SumOfRewards


@method(
    paper=Paper(
        title="Walk Before You Run! Concise LLM Reasoning via Reinforcement Learning",
        authors="Song, Mingyang and Zheng, Mao",
        year=2025,
        arxiv="2505.21178",
    ),
    changes="DAPO with an entropy bonus, then a second stage that pays what is left of the length where all are right.",
    room="rewards",
    tier="reading",
)
def conciser(
    *,
    group: int = 16,
    stage: Literal[1, 2] = 2,
    weight: float = 1.0,
    limit: int | None = None,
    low: float = 0.2,
    high: float = 0.28,
    entropy: float = 0.001,
    refills: int = 9,
) -> Algorithm:
    """Stage 1, GRPO++: DAPO's higher upper clip, dynamic sampling and token mean, with an entropy bonus, rewards 1 and
    0, no length penalty and no KL. Stage 2, L-GRPO: every group is kept, and

        R_i = 1 + weight (1 - L_i / limit)   where all answers to the question are right,
        R_i = 1 or 0                         elsewhere.

    In a group that is all right the z-score depends on length alone: groups without a signal for GRPO reward brevity.
    limit None is the batch's horizon. That length counts only where all rollouts are right, the stages and the entropy
    bonus are the paper's; how what is left of the length is measured, the weight of the bonus and the group are our
    reading, as the authors published no training code. Dynamic sampling is off in stage 2: it would drop the very
    groups. The z-score makes length as important as being right, whatever the weight.
    """
    first = dapo(group=group, low=low, high=high, refills=refills).but(reward=OutcomeReward())
    if entropy:
        first = first.but(**{"objective.regularise": [EntropyBonus(coefficient=entropy)]})
    if stage == 1:
        return first
    brief = LinearLength(weight=weight, free=1.0, limit=limit)
    reward = SumOfRewards(terms=[OutcomeReward(), ConditionalReward(reward=brief, when=SolvedGroups(least=1.0))])
    return first.but(reward=reward, **{"sampling.select": [], "sampling.refills": 0})
