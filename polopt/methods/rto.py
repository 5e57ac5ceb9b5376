"""RTO: PPO with the reward that a DPO policy implies for each token."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import KLPenalty, OutcomeReward, PolicyLogRatio, Reward, SumOfRewards
from polopt.setting_types import Unbounded


@method(
    paper=Paper(
        title="DPO Meets PPO: Reinforced Token Optimization for RLHF",
        authors="Zhong, Han and others",
        year=2024,
        arxiv="2404.18922",
    ),
    changes="PPO whose reward is dense: each token earns the log-ratio of a DPO policy to the reference.",
    room="rewards",
    tier="proven",
)
def rto(
    *,
    dense: float = 0.05,
    limit: Unbounded = 0.05,
    kl: float = 0.01,
    outcome: float = 1.0,
    group: int = 1,
    clip: float = 0.2,
    lam: float = 0.95,
) -> Algorithm:
    """PPO maximises

        r_t = clip(dense log dpo(y_t)/ref(y_t), -limit, limit) - kl log pi(y_t)/ref(y_t)

    at every token, and outcome R on the last one. The DPO policy is frozen and the stage names it, as `policies:
    {dpo: {stage: dpo}}` after a stage of that name, with the policy that it started from as the `reference`.

    Unclipped, the best policy is proportional to ref (dpo / ref)^(dense / kl) exp(outcome R / kl): the dense terms of
    an answer add up to the DPO policy's reward for it. The published defaults clip at the size of a log-ratio of one
    nat, which gives that up.

    dense: weight of the DPO policy's reward. limit: the largest size of a token's; inf for any. kl: weight of the
    distance to the reference. outcome: weight of the answer's own reward, which the paper's code clips to 10 and
    normalises by running statistics; `rewards.ScaledReward` does the latter. group, clip, lam: PPO's.
    """
    terms: list[Reward] = [PolicyLogRatio(coefficient=dense, limit=limit), KLPenalty(coefficient=kl), OutcomeReward()]
    reward = SumOfRewards(terms=terms, weights=[1.0, 1.0, outcome])
    return ppo(group=group, clip=clip, lam=lam, kl=0.0).but(reward=reward)
