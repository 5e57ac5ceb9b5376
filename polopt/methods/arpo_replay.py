"""ARPO with experience replay: a task that failed in all rollouts gets one of its earlier successes back."""

from polopt.algorithm import Algorithm
from polopt.features.masks import IsCorrect
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import Clip, OldPolicyRatio
from polopt.sampling import SuccessReplay


@method(
    paper=Paper(
        title="ARPO: End-to-End Policy Optimization for GUI Agents with Experience Replay",
        authors="Lu, Fanbin and Zhong, Zhisheng and Liu, Shu and Fu, Chi-Wing and Jia, Jiaya",
        year=2025,
        arxiv="2505.16282",
    ),
    changes="GRPO whose groups that failed as a whole get an earlier success of their task, with a higher upper clip.",
    room="sampling",
    tier="proven",
)
def arpo_replay(
    *, group: int = 8, each: int = 8, success: float = 1.0, low: float = 0.2, high: float = 0.3, kl: float = 0.0
) -> Algorithm:
    """A group without a success has one rollout replaced by one of its task's last successes, uniformly drawn, and

        A_i = (R_i - mean_g R) / (std_g R + eps),    L = -mean min(r A, clip(r, 1 - low, 1 + high) A)

    so that a success among G - 1 failures has the advantage (G - 1) / sqrt(G), and each failure -1 / sqrt(G), where
    without it all were 0. r is the ratio to the policy before the update, also for a row of an older policy, which has
    no other correction: `but(**{"objective.ratio": {"part": "objectives.TokenRatio"}})` takes it to the policy that
    sampled the row.

    each: successes that are kept of a task.
    success: the least outcome of one; the paper's environments score in [0, 1], and more than 0.1 is one there.

    The authors' code replays where a group's mean is below 0.2 and its deviation below 0.05; here, where it has no
    success, which is the same for outcomes of 0 and 1. It replaces the first rollout, we the last. The paper adds half
    of a reward for the format, which is a term of the reward here as anywhere, and keeps tasks that a first agent
    solves at least once in some attempts; that is left to the choice of tasks. Of a paper with the same short name,
    on branching by entropy, nothing is here.
    """
    replay = SuccessReplay(each=each, right=IsCorrect(threshold=success))
    changes = {"objective.ratio": OldPolicyRatio(), "objective.trust": Clip(low=low, high=high)}
    return grpo(group=group, kl=kl).but({**changes, "sampling.mix": [replay]})
