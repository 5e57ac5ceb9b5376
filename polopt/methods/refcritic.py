"""RefCritic: a critic is rewarded for the accuracy of another policy that has read its critique."""

from __future__ import annotations

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import FieldReward, OutcomeReward, SumOfRewards


@method(
    paper=Paper(
        title="RefCritic: Training Long Chain-of-Thought Critic Models with Refinement Feedback",
        authors="Tang, Qiaoyu and others",
        year=2025,
        arxiv="2507.15024",
    ),
    changes="GRPO for a critic, rewarded for its verdict and for the success rate of a second policy that has read the "
    "critique.",
    room="rewards",
    tier="reading",
)
def refcritic(*, group: int = 8, stage: int = 2, beta: float = 1.0, kl: float = 0.04) -> Algorithm:
    """Reward of a critic that reads a problem and a solution, and writes a verdict and a critique c,

        R = 1[verdict right] + beta 1[solution wrong, and called wrong] (1/m) sum_k 1[refined answer k right],

    with m answers of a second, frozen policy that has read c. stage 1 is the first term alone, stage 2 both; the
    recipe `refcritic` is a cold start by imitation, then stage 1, then stage 2. beta = 0 is stage 1.

    The environment rewards the verdict, and returns the share of right refined answers as its signal `refined`
    (`worlds.Critic`, where the second policy is a program and m is `tries`). The paper's abstract names the two
    rewards. The rest was not
    seen: how they are combined, which solutions the second counts for, beta, m and the order of the stages are our
    reading. Two further points are ours. The second policy's random numbers are the solution's, so that critiques
    of one group differ by their content alone. And a critique may reveal the answer, which this reward favours: the
    environment hides it from the second policy by default, and returns the signal `leaked` in any case.

    Raises:
        ValueError: a stage other than 1 and 2.
    """
    if stage not in (1, 2):
        raise ValueError(f"refcritic: stage must be 1 or 2, found {stage}")
    if stage == 1:
        return grpo(group=group, kl=kl)
    reward = SumOfRewards(terms=[OutcomeReward(), FieldReward(name="signal_refined")], weights=[1.0, beta])
    return grpo(group=group, kl=kl).but(reward=reward)
