"""GUI-R1: actions on screens are rewarded by rules, one reward for the right action and one for its form."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import FieldReward, OutcomeReward, SumOfRewards


@method(
    paper=Paper(
        title="GUI-R1: A Generalist R1-Style Vision-Language Action Model For GUI Agents",
        authors="Luo, Run and Wang, Lu and He, Wanwei and Chen, Longze and Li, Jiaming and Xia, Xiaobo",
        year=2025,
        arxiv="2504.10458",
    ),
    changes="GRPO whose reward is 0.8 for the right action on a screen and 0.2 for an answer of the right form.",
    room="rewards",
    tier="faithful",
)
def gui_r1(*, group: int = 5, right: float = 0.8, form: float = 0.2, clip: float = 0.2, kl: float = 0.01) -> Algorithm:
    """With R_acc 1 for the right action, of the right kind, place and text, and R_fmt 1 for the right form,

        R = right R_acc + form R_fmt

    of one answer to one screen, and GRPO's update.

    R_acc is the outcome and R_fmt is `extras["signal_format"]`, both told by the world `screens`, whose rules are the
    paper's (`worlds.gui_actions`): a click is within a box or nearer than 140 pixels to a point, a text has half of the
    words, and other actions need the right kind alone. The authors' code evaluates the answer as Python; here it is
    read as a literal. The world tells its screens in words, where the paper's are pictures. group and kl are those of
    the trainer that the paper builds on, and could not be confirmed.
    """
    reward = SumOfRewards(terms=[OutcomeReward(), FieldReward(name="signal_format")], weights=(right, form))
    return grpo(group=group, clip=clip, kl=kl).but(reward=reward)
