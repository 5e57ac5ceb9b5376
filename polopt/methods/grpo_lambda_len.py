"""GRPO-lambda for short answers: only the groups that are solved best are asked to be brief."""

import math

from polopt.algorithm import Algorithm
from polopt.lab.length_bandit import stable_for, thrift
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import ConditionalReward, LinearLength, OutcomeReward, RelativeLength, SumOfRewards, TopGroups


@method(
    paper=Paper(
        title="Stable Reinforcement Learning for Efficient Reasoning",
        authors="Dai, Muzhi and Liu, Shixuan and Si, Qingyi",
        year=2025,
        arxiv="2505.18086",
    ),
    changes="GRPO whose reward also counts length, but only in the share of groups that are solved best.",
    room="rewards",
    tier="faithful",
)
def grpo_lambda_len(
    *, group: int = 16, share: float = 0.2, weight: float = 0.2, clip: float = 0.2, kl: float = 0.0
) -> Algorithm:
    """Of the batch's n groups, ranked by their share of right answers, the ceil(share n) best are paid

        R_i = 1 - weight sigmoid((L_i - m_g) / s_g) if right, 0 if wrong,

    m_g and s_g the mean and standard deviation of the length of the group's right answers; all others 1 or 0. Then
    GRPO's z-score in each group. share is the paper's lambda, weight its alpha: 20 % is its example, weight and group
    are ours. The formula was read in a transcription of the paper; no code of the authors was found. Open there, and
    ours: s is the population's; where it is 0 the sigmoid is 1/2; ties go to the group that comes first in the batch;
    groups without a right answer are never chosen; no KL. A group that is all right has no other reward than length,
    and the z-score blows it up to variance 1, whatever the weight. Other methods named lambda-GRPO and GRPO-lambda
    weigh tokens and trace eligibility.
    """
    brief = ConditionalReward(reward=RelativeLength(weight=weight), when=TopGroups(share=share))
    return grpo(group=group, clip=clip, kl=kl).but(reward=SumOfRewards(terms=[OutcomeReward(), brief]))


PLAIN = {"reward": OutcomeReward()}
EVERY = {"reward.terms.1": LinearLength(weight=0.2, rows="all")}
RIGHT = {"reward.terms.1": RelativeLength()}


@grpo_lambda_len.claim(
    "Training stays stable for at least 2.5 times as many steps: hard questions are not given up for brevity.",
    baseline="a penalty on every answer",
)
def stable() -> Finding:
    fallen = [stable_for(grpo_lambda_len(group=8).but(EVERY), most=400, seed=seed) for seed in range(2)]
    ours = [stable_for(grpo_lambda_len(group=8), most=math.ceil(2.5 * n), seed=seed) for seed, n in enumerate(fallen)]
    quotients = [mine / theirs for mine, theirs in zip(ours, fallen, strict=True)]
    return Finding(
        measured={"least quotient of steps": min(quotients), "penalty on every answer: steps": sum(fallen) / 2},
        criterion="steps until hard questions are half as often right as at first: >= 2.5x in each of 2 seeds (no "
        "longer was looked)",
        holds=min(quotients) >= 2.5,
        note="The very first step does not tell them apart: from lengths that are all as likely, it helps hard "
        "questions under either reward.",
    )


@grpo_lambda_len.claim(
    "Where hard questions need long answers, easy ones are answered with half the tokens and hard ones still right.",
    baseline="GRPO; a penalty on every answer; a penalty on right answers in all groups",
    cost="slow",
)
def no_collapse() -> Finding:
    ours = thrift(grpo_lambda_len(group=8))
    plain, every, right = (thrift(grpo_lambda_len(group=8).but(change)) for change in (PLAIN, EVERY, RIGHT))
    return Finding(
        measured={
            "hard questions right": ours.hard,
            "GRPO": plain.hard,
            "penalty on every answer": every.hard,
            "penalty on right answers": right.hard,
            "easy length": ours.easy_length,
            "GRPO: easy length": plain.easy_length,
            "lowest of hard on the way": ours.hard_lowest,
        },
        criterion="hard >= 0.75 and >= with the penalty on right answers; easy length <= half of GRPO's; with the "
        "penalty on every answer hard < 0.1 (1,500 steps, 4 seeds)",
        holds=ours.hard >= max(0.75, right.hard) and ours.easy_length <= 0.5 * plain.easy_length and every.hard < 0.1,
    )
