"""GRPO-lambda: a length penalty on the groups with the highest success rates only."""

from polopt.algorithm import Algorithm
from polopt.features.masks import TopGroups
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import ConditionalReward, OutcomeReward, RelativeLength, SumOfRewards


@method(
    paper=Paper(
        title="Stable Reinforcement Learning for Efficient Reasoning",
        authors="Dai, Muzhi and Liu, Shixuan and Si, Qingyi",
        year=2025,
        arxiv="2505.18086",
    ),
    changes="GRPO whose reward also counts length, but only in the share of groups that are solved best.",
    room="rewards",
    tier="proven",
)
def grpo_lambda_len(
    *, group: int = 16, share: float = 0.2, weight: float = 0.2, clip: float = 0.2, kl: float = 0.0
) -> Algorithm:
    """Reward of the ceil(share n) groups with the largest share of right answers among the batch's n groups,

        R_i = 1 - weight sigmoid((L_i - m_g) / s_g) if right, 0 if wrong,

    m_g and s_g the mean and standard deviation of the length of the group's right answers; all others have 1 or 0. Then
    GRPO's z-score in each group. share is the paper's lambda, weight its alpha: 20 % is its example, weight and group
    are ours. The formula was read in a transcription of the paper; no code of the authors was found. Open there, and
    ours: s is the population's; where it is 0 the sigmoid is 1/2; ties go to the group that comes first in the batch;
    groups without a right answer are never chosen; no KL. A group that is all right has no other reward than length,
    and the z-score scales it to variance 1, whatever the weight. Other methods named lambda-GRPO and GRPO-lambda
    weight tokens and trace eligibility.
    """
    brief = ConditionalReward(reward=RelativeLength(weight=weight), when=TopGroups(share=share))
    return grpo(group=group, clip=clip, kl=kl).but(reward=SumOfRewards(terms=[OutcomeReward(), brief]))
