"""VADE: task selection by Thompson sampling of success rates."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import SuccessCounts
from polopt.sampling.task_samplers import TopScore, worth


@method(
    paper=Paper(
        title="VADE: Variance-Aware Dynamic Sampling via Online Sample-Level Difficulty Estimation for Multimodal RL",
        authors="Hu, Zengjie and Qiu, Jiantao and others",
        year=2025,
        arxiv="2511.18902",
    ),
    changes="GRPO on the tasks that promise most by Thompson sampling from a Beta posterior of each one's success.",
    room="sampling",
    tier="reading",
)
def vade(
    *,
    group: int = 8,
    by: Literal["gain", "variance"] = "gain",
    keep_all: float = 0.995,
    keep_used: float = 0.5,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """theta_i ~ Beta(1 + right_i, 1 + wrong_i) for every task; a batch is the tasks of the largest

        theta_i (1 - theta_i)^2,

    without replacement, and no rollout is thrown away. As the policy changes, counts decay: keep_all of every task's
    counts stay from batch to batch, and keep_used of those of the tasks just taken, before their new ones are added.

    The paper names two scales of decay; its factors are not known to us, nor whether the prior fades with the counts:
    here the prior stays, and both factors are settings. keep_all = keep_used = 1 is plain Thompson sampling, which is
    better while the policy stands still. by="variance" scores theta (1 - theta). Ties are broken at random. An
    untried task has Beta(1, 1) and is therefore taken sooner or later. GRPO's own settings are ours.
    """
    choice = PosteriorScore(by=by, success=SuccessCounts(keep_all=keep_all, keep_used=keep_used))
    return grpo(group=group, clip=clip, kl=kl).but(**{"sampling.choice": choice})


class PosteriorScore(TopScore):
    """Selects the tasks of the highest score at a success rate p sampled from their Beta posterior:

        "gain": p (1 - p)^2, highest at 1/3;    "variance": p (1 - p), highest at 1/2.

    Source: VADE, arXiv:2511.18902; "variance" is the learnability of arXiv:2509.21268.
    """

    by: Literal["gain", "variance"] = "gain"

    def score(self, p: Tensor) -> Tensor:
        return worth(p, self.by)
