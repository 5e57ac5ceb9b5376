"""RLUF: the predicted probability of a user's positive reaction as one of several rewards."""

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

        fit_scorer(scorer, (prompts, answers, liked), steps=...)        then  love=LearnedJudge(weights=folder,
        link="sigmoid")

    with `metrics.chronological` for the split, `auroc` and `calibration_error` for its quality on later days, and
    `release_gate` with `tic_rate` before a release: a closing that policies learn to add to every answer, whatever the
    prompt, is favoured by the model of reactions and detected by none of the others. Weight 0 is RLHF with the other
    rewards.

    helpful None is the environment's outcome, safe None is left out, and love None is an untrained scorer, of use only
    to try out a recipe. The paper optimises several objectives with CGPO and does not print their weights; a
    weighted sum and GRPO are our reading. A log must hold only answers that a user has seen: for an unseen answer
    a missing reaction is no dislike.
    """
    love = LearnedJudge(link="sigmoid") if love is None else love
    others = [OutcomeReward() if helpful is None else helpful, *([] if safe is None else [safe])]
    reward = SumOfRewards(terms=[*others, JudgedReward(judge=love)], weights=[*[1.0] * len(others), weight])
    return grpo(group=group, kl=kl).but(reward=reward)
