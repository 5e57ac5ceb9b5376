"""Mobile-R1: actions on screens are learned one by one, then whole tasks, with one reward for a task."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import FieldReward, JudgedReward, OutcomeReward, Reward, SumOfRewards
from polopt.rewards.judges import Judge


@method(
    paper=Paper(
        title="Mobile-R1: Towards Interactive Reinforcement Learning for VLM-Based Mobile Agent via Task-Level Rewards",
        authors="Gu, Jihao and Ai, Qihang and Wang, Yingyao and Bu, Pi and Xing, Jingxuan and others",
        year=2025,
        arxiv="2506.20332",
    ),
    changes="GRPO in two stages after imitation: on single actions with a reward by rules, then on whole tasks with "
    "one reward, so that the policy meets its own wrong screens.",
    room="rewards",
    tier="reading",
)
def mobile_r1(
    *,
    stage: Literal[2, 3] = 3,
    group: int = 8,
    form: float = 1.0,
    judge: Judge | None = None,
    clip: float = 0.2,
    kl: float = 0.04,
) -> Algorithm:
    """With R_act 1 for the right action on a screen, R_task 1 for a task that was done, and R_fmt for the right form,

        stage 2:  R = R_act + form R_fmt,     of one answer to one screen
        stage 3:  R = R_task + form R_fmt,    of all answers of an episode

    and GRPO's update, where a rollout's advantage is that of all its turns. Stage 1 is `sft` on demonstrations, which
    go back from wrong screens, too. Each is a stage of a recipe (`polopt/recipes/mobile-r1.yaml`), with its own tasks.

    judge: of whether a task was done, a model that is asked, in stage 3; None for the world's outcome.

    R_act is the outcome of tasks of one action, R_fmt is `extras["signal_format"]`: worlds `screens` and `apps` tell
    both, and say their screens in words, where the paper's are pictures that a vision-language model reads. The paper
    judges tasks by a strong such model. Its weights, rubric, groups and lengths of stages could not be confirmed.
    """
    if judge is not None and stage == 2:
        raise ValueError("mobile-r1: a judge is asked in stage 3; stage 2 is scored by rules")
    right: Reward = OutcomeReward() if judge is None else JudgedReward(judge=judge)
    reward = SumOfRewards(terms=[right, FieldReward(name="signal_format")], weights=(1.0, form))
    return grpo(group=group, clip=clip, kl=kl).but(reward=reward)
