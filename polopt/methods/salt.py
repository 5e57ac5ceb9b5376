"""SALT: a step that several rollouts of a group share has the mean of their advantages."""

from polopt.algorithm import Algorithm
from polopt.credit import EdgeMeanAdvantage
from polopt.method import Paper, method
from polopt.methods.grpo import grpo


@method(
    paper=Paper(
        title="SALT: Step-level Advantage Assignment for Long-horizon Agents via Trajectory Graph",
        authors="Li, Jiazheng and Wang, Yawei and Yan, Qiaojing and Tian, Yijun and Xu, Zhichao and others",
        year=2025,
        arxiv="2510.20022",
    ),
    changes="GRPO whose rollouts give each step that they share the mean of their advantages.",
    room="credit",
    tier="reading",
)
def salt(*, group: int = 8, window: int = 0, clip: float = 0.2, kl: float = 0.0) -> Algorithm:
    """The rollouts of a prompt are ways through a graph: a node is a state, an edge a turn with its state, its action
    and the state after it. With I(e) the rollouts of the group that take edge e, and A_i GRPO's advantage,

        A_ih = mean_{j in I(e)} A_j    for the edge e of turn h of row i

    so that a step that right and wrong rollouts share has a credit near 0, and one that no other takes keeps its own.
    The loss is GRPO's; the wrapper takes any credit.

    window: how many states before the edge must be the same, too.

    We have read the paper's abstract and reviews of it, not its formula: how it matches steps, and that it takes the
    plain mean, are our reading. Where the gradient of a step is the same in all rollouts that share it, all their
    decisions weigh the same and none takes it twice, this is GRPO's update: what changes are steps of rows of different
    lengths, whose decisions GRPO weighs by 1 / |y_i|, clipped steps, and steps that follow different histories.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    return base.but(credit=EdgeMeanAdvantage(credit=base.credit, window=window))
