"""ProGRPO: advantages lowered for confident answers and raised for unlikely right ones."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, ModulatedAdvantage, RelativeAdvantage
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.features.base import RowFeature, TokenFeature
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

        c(o_i) = exp(mean_{t in S} log pi(o_it)),    c(q) = exp(mean_t log pi(q_t))

    with S the `share` least likely tokens of o_i, so that c(q) is one over the prompt's perplexity. The loss is a mean
    over tokens with the clip 1 - low, 1 + high. alpha and the form of c(q) are our reading. c(q) is one number for the
    group and not matched to c(o), so it lifts or lowers all its answers, right and wrong, together: than="group" takes
    the group's mean c(o) instead, and needs no prompt. limit=1 keeps the correction from turning an advantage round.
    The prompt is read once per group.
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


class RelativeSurprisal(TokenFeature):
    """weight (c_q - c_i) on every decision of row i: negative for confident answers, positive for unlikely ones; 0 in a
    group without a row that is `right`.

    of: the answer's confidence c_i. than: c_q, "prompt" for exp(`extras["prompt_logp"]`), one over the prompt's
    perplexity, or "group" for the mean of the group's c_i, with which the signal sums to 0 over the group.
    """

    weight: float = 0.3
    of: RowFeature = Confidence()
    than: Literal["prompt", "group"] = "prompt"
    right: RowMask = IsCorrect()

    reads_batch = True

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"outcome", "group"} | ({"extras.prompt_logp"} if self.than == "prompt" else set()))

    def forward(self, experience: Experience) -> Tensor:
        sure, group = self.of(experience), experience.group
        expected = experience.extras["prompt_logp"].exp() if self.than == "prompt" else ops.group_mean(sure, group)
        hit = ops.group_sum(self.right(experience).to(sure.dtype), group) > 0
        gain = torch.where(hit, self.weight * (expected.to(sure.dtype) - sure), 0)
        return gain[:, None].expand_as(experience.mask)
