"""RLUF: how likely people are to react, as one reward among others."""

from __future__ import annotations

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import Judge, JudgedReward, LearnedJudge, OutcomeReward, Reward, SumOfRewards


@method(
    paper=Paper(
        title="Reinforcement Learning from User Feedback",
        authors="Han, Eric and others",
        year=2025,
        arxiv="2505.14946",
    ),
    changes="GRPO on a weighted sum: helpfulness, safety, and the chance that a user reacts with love.",
    room="rewards",
    tier="reading",
)
def rluf(
    *,
    group: int = 8,
    love: Judge | None = None,
    weight: float = 1.0,
    helpful: Reward | None = None,
    safe: Reward | None = None,
    kl: float = 0.04,
) -> Algorithm:
    """R_i = helpful_i + safe_i + weight P[love | x, y_i]. P[love] is a scorer with a sigmoid, trained by binary
    cross-entropy on logged reactions, rare ones left rare:

        fit(scorer, (prompts, answers, liked), steps=...)        then  love=LearnedJudge(weights=folder, link="sigmoid")

    with `metrics.chronological` for the split, `auroc` and `calibration_error` for what it is worth on later days, and
    `release_gate` with `tic_rate` before anything is released: what policies learn to say at the end of every answer,
    whatever was asked, is liked by the model of reactions and seen by none of the others. Weight 0 is RLHF with the
    other rewards.

    helpful None is the world's outcome, safe None is left out, and love None an untrained scorer, which knows nothing:
    for trying out a recipe. The paper optimises several objectives with CGPO and does not print their weights; a
    weighted sum and GRPO are our reading. A log is of answers that somebody saw: rows that were shown to nobody belong
    in no log, for a missing reaction is no dislike.
    """
    love = LearnedJudge(link="sigmoid") if love is None else love
    others = [OutcomeReward() if helpful is None else helpful, *([] if safe is None else [safe])]
    reward = SumOfRewards(terms=[*others, JudgedReward(judge=love)], weights=[*[1.0] * len(others), weight])
    return grpo(group=group, kl=kl).but(reward=reward)
