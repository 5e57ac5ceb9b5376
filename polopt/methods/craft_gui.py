"""CRAFT-GUI: group advantages on tasks that grow harder stage by stage, with rules and a judge as the reward."""

from collections.abc import Sequence

from polopt.algorithm import Algorithm
from polopt.features.masks import TaskKindIs
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import ConditionalReward, FieldReward, Judge, JudgedReward, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import KindCurriculum


@method(
    paper=Paper(
        title="CRAFT-GUI: Curriculum-Reinforced Agent For GUI Tasks",
        authors="Nong, Songqin and Xu, Jingxuan and Zhou, Sheng and Chen, Jianfeng and others",
        year=2025,
        arxiv="2508.11360",
    ),
    changes="GRPO on tasks of one difficulty after the other, with rules for actions on screens and a judge for other "
    "answers.",
    room="sampling",
    tier="reading",
)
def craft_gui(
    *,
    group: int = 8,
    levels: Sequence[Sequence[str]] = (),
    batches: int = 20,
    review: float = 0.0,
    form: float = 0.2,
    judge: Judge | None = None,
    judged: Sequence[str] = (),
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """Stages of `batches` batches, each on the tasks of one difficulty and with the policy of the stage before, and

        R = (1 - form) R_acc + form R_fmt,    A_i = (R_i - mean_g R) / (std_g R + eps)

    with R_acc the outcome by rules, or a judge's score in [0, 1] of tasks of the kinds `judged`, such as questions on
    what a screen shows; R_fmt is `extras["signal_format"]`, as of the world `screens`.

    levels: the kinds of task of each stage, the easiest first; the tasks' kinds in their order if none are given.
    review: share of tasks of earlier stages, against forgetting; the paper names none.

    The paper could be read in its abstract alone: stages in order of difficulty, GRPO, and a reward of simple rules and
    of a judgement are its own; how many stages, how long they are and the weights, GUI-R1's here, are our reading.
    """
    if (judge is None) != (not judged):
        raise ValueError("craft-gui: a judge needs the kinds of task that it judges, and they need a judge; give both")
    right: list[Reward] = [OutcomeReward()]
    if judge is not None:
        others = TaskKindIs(kinds=tuple(judged), invert=True)
        right = [ConditionalReward(reward=right[0], when=others)]
        right.append(JudgedReward(judge=judge, where=others.but(invert=False)))
    choice = KindCurriculum(levels=tuple(map(tuple, levels)), batches=batches, review=review)
    weights = [1 - form] * len(right) + [form]
    reward = SumOfRewards(terms=[*right, FieldReward(name="signal_format")], weights=weights)
    return grpo(group=group, clip=clip, kl=kl).but({"reward": reward, "sampling.choice": choice})
