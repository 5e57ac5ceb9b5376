"""ProGRPO: advantages lowered for confident answers and raised for unlikely right ones."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, ModulatedAdvantage, RelativeAdvantage, RelativeSurprisal
from polopt.features.rows import Confidence
from polopt.method import Paper, method
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Back to Basics: Revisiting Exploration in Reinforcement Learning for LLM Reasoning via Generative "
        "Probabilities",
        authors="Li, Pengyi and Goncharova, Elizaveta and Kuznetsov, Andrey and Oseledets, Ivan",
        year=2026,
        arxiv="2602.05281",
    ),
    changes="GRPO plus alpha (confidence in the prompt - confidence in the answer) where the group has a right answer; "
    "token mean, clip up to 1.28, no KL.",
    room="credit",
    tier="reading",
)
def progrpo(
    *,
    group: int = 8,
    alpha: float = 0.3,
    share: float = 0.2,
    than: Literal["prompt", "group"] = "prompt",
    limit: float | None = None,
    low: float = 0.2,
    high: float = 0.28,
) -> Algorithm:
    """A~_i = A_i + alpha (c(q) - c(o_i)) if some answer of the group is right, else A_i, with A_i GRPO's z-score;

        c(o_i) = exp(mean of log pi over the `share` least likely tokens of o_i),    c(q) = 1 / perplexity of q.

    The loss is a mean over tokens with the clip 1 - low, 1 + high. alpha and the form of c(q) are our reading. c(q) is
    one number for the group and not matched to c(o), so it lifts or lowers all its answers, right and wrong, together:
    than="group" takes the group's mean c(o) instead, and needs no prompt. limit=1 keeps the correction from turning an
    advantage round. The prompt is read once per group.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=ModulatedAdvantage(
            credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
            plus=RelativeSurprisal(weight=alpha, of=Confidence(share=share), than=than),
            limit=limit,
        ),
        objective=Surrogate(ratio=TokenRatio(), trust=Clip(low=low, high=high), aggregate=TokenMean()),
    )
