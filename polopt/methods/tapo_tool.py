"""TAPO: DAPO for answers with tools, whose form comes first."""

from polopt.algorithm import Algorithm
from polopt.features.masks import WellFormed
from polopt.method import Paper, method
from polopt.methods.dapo import dapo
from polopt.rewards import ConditionalReward, OutcomeReward, OverlongPenalty, SumOfRewards


@method(
    paper=Paper(
        title="Tool-Augmented Policy Optimization: Synergizing Reasoning and Adaptive Tool Use with Reinforcement "
        "Learning",
        authors="Wu, Wenxun and Li, Yuanyang and Chen, Guhan and Wang, Linyue and Chen, Hongyang",
        year=2025,
        arxiv="2510.07038",
    ),
    changes="DAPO for answers with tools: one that breaks the form has reward -1, any other its score from 0 to 1.",
    room="rewards",
    tier="faithful",
)
def tapo_tool(
    *, group: int = 4, low: float = 0.2, high: float = 0.28, dual: float = 10.0, refills: int = 9, error: float = -1.0
) -> Algorithm:
    """With R(y) in [0, 1] the outcome of an answer y,

        R_i = R(y_i) if y_i is well formed, else error;    R_i + OverlongPenalty(|y_i|)

    is the reward, and the rest is DAPO: tokens of tools are not decisions and have no part in loss or mean.

    error: the reward of an answer whose form is wrong: `features.WellFormed`, of `extras["signal_malformed"]`, which
        worlds with tools tell, and of answers that end by themselves.
    dual: bound on the terms of negative advantages, as in the authors' settings.

    The paper's scores are those of its data: an exact answer, a number within 1e-3 or 5 %, and a text that contains the
    right one or is near to it by edit distance; here the score is the world's, see `polopt.worlds.scoring`. Groups are
    dropped by their scores before the form counts, as in the authors' code, which calls a score above 0.9 right. Their
    buffer before the limit is half of it, ours DAPO's fifth. Nothing here charges for calls: see the claims for what
    that means.
    """
    scored = ConditionalReward(reward=OutcomeReward(), when=WellFormed(), otherwise=error)
    changes = {"reward": SumOfRewards(terms=[scored, OverlongPenalty()]), "objective.trust.dual": dual}
    return dapo(group=group, low=low, high=high, refills=refills).but(changes)
