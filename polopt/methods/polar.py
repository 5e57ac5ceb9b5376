"""POLAR: a reward model that discriminates whether an answer and a reference come from the same policy."""

from __future__ import annotations

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import Judge, JudgedReward, LearnedJudge


@method(
    paper=Paper(
        title="Pre-Trained Policy Discriminators are General Reward Models",
        authors="Dou, Shihan and others",
        year=2025,
        arxiv="2507.05197",
    ),
    changes="GRPO's reward comes from a discriminator of policies: whether the answer and a reference have one author.",
    room="rewards",
    tier="reading",
)
def polar(*, group: int = 8, kl: float = 0.0, judge: Judge | None = None) -> Algorithm:
    """R_i = r(x, y_ref, y_i), with y_ref the task's solution, and GRPO's advantage in the group of one prompt. Before,
    r is trained on texts of many policies: y1 and y2 of policy A, z of policy B, all answers to x,

        loss = -log sigmoid(r(x, y1, y2) - r(x, y1, z)),

    so that its optimum is, up to what depends on (x, y1) alone, the log of how much likelier y is from the author of y1
    than from the mixture of all policies. `backends` holds the code: `same_policy_pairs` samples the pairs,
    `fit_scorer` trains a `TextScorer`, `save_scorer` writes it to a folder, and

        polar(judge=LearnedJudge(weights=folder, compares=True))

    reads it; fine-tuning on ranked answers is `fit_scorer` on `Pairs` with references. The default judge is an
    untrained scorer, of use only to try out a recipe. Or take an `HTTPJudge` whose template has {reference}.

    The paper's scripts train with PPO, a critic and no KL; scores are comparable only for one reference, so groups
    are the baseline here. The paper reads prompt and reference, and prompt and candidate, as one string with a
    language model; `TextScorer` encodes them separately and multiplies the encodings: small enough to train fast.

    An optimum of E[r] alone is no copy of the author: it exaggerates the author's differences from the mixture. With
    the mixture for a reference policy and a KL of the right weight it would be one.
    """
    judge = LearnedJudge(compares=True) if judge is None else judge
    return grpo(group=group, kl=kl).but(reward=JudgedReward(judge=judge))
