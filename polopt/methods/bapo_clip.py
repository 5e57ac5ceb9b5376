"""BAPO: PPO's clip with bounds that are adapted at every step to balance positive and negative advantages."""

from __future__ import annotations

from math import ceil, inf
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import TokenMean
from polopt.objectives.parts import Ratio, SurrogateTerm
from polopt.objectives.ratios import TokenRatio
from polopt.objectives.surrogate_terms import pessimistic


@method(
    paper=Paper(
        title="BAPO: Stabilizing Off-Policy Reinforcement Learning for LLMs via Balanced Policy Optimization "
        "with Adaptive Clipping",
        authors="Xi, Zhiheng and others",
        year=2025,
        arxiv="2510.18927",
    ),
    changes="GRPO with a token mean, no KL and clip bounds that are searched at every optimiser step to balance right "
    "and wrong answers.",
    room="objectives",
    tier="faithful",
)
def bapo_clip(
    *,
    group: int = 8,
    low: tuple[float, float] = (0.6, 0.9),
    high: tuple[float, float] = (1.2, 3.0),
    target: float = 1.0,
    share: Share = "surrogate",
) -> Algorithm:
    """A_i as in GRPO and, with bounds of the ratio itself,

        L = (1 / sum_i |y_i|) sum_it max(-A_i r_it, -A_i clip(r_it, c_low, c_high)), at most -3 A_i where A_i < 0

    c_low and c_high start at low[0] and high[0]. While P / N < target, c_low rises in steps of 0.05 to low[1], then
    c_high to high[1]. P adds up what pulls towards answers, N what pulls away from them, over the optimiser batch and
    under the current policy; where batches are split that costs a pass without gradient. target 1 is the paper's
    share of 0.5. The bounds are logged as clip/low and clip/high.

    share "surrogate" is the published code's and adds up the clipped terms: raising c_low then raises N, away from the
    target, so that c_low runs to its limit wherever P / N begins below the target. "gradient", polopt's own, adds up
    A r of the tokens that keep a gradient: each step then moves P / N towards the target. The
    ranges are the paper's; the code's configuration has 0.8 and 2.0 for the limits. On policy no bound acts.
    """
    trust = BalancedClip(low=low, high=high, target=target, share=share)
    return grpo(group=group, kl=0).but({"objective.trust": trust, "objective.aggregate": TokenMean()})


Share = Literal["gradient", "surrogate"]


def right_pull(
    ratio: Float[Tensor, "N"], advantage: Float[Tensor, "N"], high: Float[Tensor, "K"], share: Share
) -> Float[Tensor, "K"]:
    """P, the sum over the decisions of positive advantage under each upper bound.

    "gradient": sum A r over r <= high, those that keep a gradient. "surrogate": sum A min(r, high).
    """
    weight = advantage.clamp(min=0)
    if share == "surrogate":
        return (weight * ratio.minimum(high[:, None])).sum(1)
    return (weight * ratio * (ratio <= high[:, None])).sum(1)


def wrong_pull(
    ratio: Float[Tensor, "N"], advantage: Float[Tensor, "N"], low: Float[Tensor, "K"], share: Share, dual: float = inf
) -> Float[Tensor, "K"]:
    """N, the sum over the decisions of negative advantage under each lower bound.

    "gradient": sum |A| r over low <= r <= dual, those that keep a gradient. "surrogate": sum |A| max(r, low), which
    grows with `low`, although a larger `low` removes gradient.
    """
    weight = -advantage.clamp(max=0)
    if share == "surrogate":
        return (weight * ratio.maximum(low[:, None])).sum(1)
    return (weight * ratio * ((ratio >= low[:, None]) & (ratio <= dual))).sum(1)


class BalancedClip(SurrogateTerm):
    """PPO's clip, max(-A r, -A clip(r, c_low, c_high)), with bounds searched anew for every optimiser step.

    low, high: (start, limit) of c_low and c_high, bounds of the ratio itself. From the starts, c_low rises by
    `step_size` as long as P / N of the whole optimiser batch is below `target`; then c_high does. share: what P and N
    add up, see `right_pull` and `wrong_pull`. dual, if given (> 1), bounds the term of a negative advantage: min(that,
    -A dual). ratio: the ratio of the surrogate, repeated here to compute it on the whole batch. A batch without
    negative advantages keeps the starts.

    Source: BAPO, arXiv:2510.18927.
    """

    low: tuple[float, float] = (0.6, 0.9)
    high: tuple[float, float] = (1.2, 3.0)
    step_size: float = 0.05
    target: float = 1.0
    share: Share = "gradient"
    dual: float | None = 3.0
    ratio: Ratio = TokenRatio()

    reads = frozenset({"advantage"})
    full_batch_outputs = frozenset({"logp"})
    zero_at_zero_advantage = True

    def setup(self) -> None:
        (start, limit), (first, last) = self.low, self.high
        if not 0 <= start <= limit <= 1 <= first <= last:
            raise ValueError(
                "methods.bapo_clip.BalancedClip: low and high are (start, limit) of the ratio's bounds, with "
                f"0 <= low <= 1 <= high, found low = {self.low}, high = {self.high}"
            )
        if self.step_size <= 0 or self.target < 0:
            raise ValueError(
                f"methods.bapo_clip.BalancedClip: need step_size > 0 and target >= 0, found {self.step_size} "
                f"and {self.target}"
            )
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"methods.bapo_clip.BalancedClip: dual must be > 1, found {self.dual}")
        # The bounds of the last search; every call searches anew, so no checkpoint holds them.
        self.register_buffer("bounds", torch.tensor([start, first]), persistent=False)

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        low, high = self.search(experience.full_batch)
        self.get_buffer("bounds").copy_(torch.tensor([low, high]))
        return pessimistic(log_ratio.exp(), experience.advantage, low, high, self.dual)

    def measured(self) -> dict[str, Tensor]:
        low, high = self.get_buffer("bounds")
        return {"clip/low": low, "clip/high": high}

    @torch.no_grad()
    def search(self, full_batch: Experience) -> tuple[float, float]:
        """Returns (c_low, c_high) for a batch with a full-batch evaluation: the first pair that meets the target, else
        the limits."""
        decided = full_batch.mask
        ratio = self.ratio(full_batch.zero_masked(), full_batch.full_batch_evaluation.zero_masked(decided)).exp()[
            decided
        ]
        advantage, lows, highs = (
            full_batch.advantage[decided],
            _ladder(*self.low, self.step_size),
            _ladder(*self.high, self.step_size),
        )
        right = right_pull(ratio, advantage, ratio.new_tensor(highs), self.share)
        wrong = wrong_pull(ratio, advantage, ratio.new_tensor(lows), self.share, self.dual or inf)
        # First c_low rises at c_high's start, then c_high at c_low's limit.
        right = torch.cat([right[:1].expand_as(wrong), right[1:]])
        wrong = torch.cat([wrong, wrong[-1:].expand(len(highs) - 1)])
        met = (right >= self.target * wrong).nonzero().flatten()
        way = [(low, highs[0]) for low in lows] + [(lows[-1], high) for high in highs[1:]]
        return way[int(met[0])] if len(met) else way[-1]


def _ladder(start: float, limit: float, step: float) -> list[float]:
    """Returns start, start + step, ... up to limit."""
    steps = ceil((limit - start) / step - 1e-9)
    return [min(start + i * step, limit) for i in range(steps + 1)]
