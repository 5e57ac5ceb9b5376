"""HAPO: sampling temperature, advantages and clip bounds that depend on the entropy of each token."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.credit.parts import Credit
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt
from polopt.method import Paper, method
from polopt.objectives import Surrogate, TokenMean, TokenRatio
from polopt.objectives.parts import SurrogateTerm, full_batch_of
from polopt.objectives.surrogate_terms import pessimistic
from polopt.part import Part
from polopt.rewards import OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.sampling import EntropyTemperature, MixedGroups, Rollouts


@method(
    paper=Paper(
        title="From Uniform to Heterogeneous: Tailoring Policy Optimization to Every Token's Nature",
        authors="Liu, Zheng and others",
        year=2025,
        arxiv="2509.16591",
    ),
    changes="DAPO whose temperature, advantage and clip follow each token's entropy, and whose groups count tokens.",
    room="objectives",
    tier="faithful",
)
def hapo(
    *,
    group: int = 16,
    quantile: float = 0.8,
    heat: float = 0.05,
    advantage: float = 1.0,
    bounds: float = 1.0,
    clip: float = 0.2,
    refills: int = 15,
    compat: Literal["text", "released"] = "text",
) -> Algorithm:
    """With h_it in [-1, 1] the level of log H_it in the batch: 0 at its `quantile`, the ends at its extremes,

        T_it = 1 + heat h_it                                   while sampling, on the scale of the batch before
        A_i  = (R_i - m) / (s + 1e-6)                          m, s: mean and std of R over the group's tokens
        A_it = A_i (1 + advantage h_it)                        if h > 0 and r outside, or h <= 0 and r inside
                                                               (1 - low / 2, 1 + high / 2); A_i otherwise
        low_it, high_it = clip (1 + bounds max(-h, 0)), clip (1 + bounds max(h, 0))

    and PPO's clip of r_it to (1 - low_it, 1 + high_it), dual clip 10, token mean; R, filter and length penalty as in
    DAPO. A group in which some |A_i| reaches 5 takes GRPO's advantage; the release includes its padding, which has
    (0 - m) / s, so that with rewards far from 0 other groups fall back there. The temperature that a token was drawn at
    is recorded and divides the learner's logits again, so that r is 1 on policy; the learner's entropies are
    at that temperature, the release's over 1. h is taken over the whole optimiser batch, in the release over each
    micro-batch. compat "released": the release divides the low side by its negative minimum, so h is |h| everywhere and
    the rules for h <= 0 apply at the pivot alone; the text has h in [-1, 1]. The release's length buffer is 0.4 of its
    limit, ours DAPO's fifth; it advises to leave the penalty out where lengths fall. Overall temperature 1.
    """
    level = EntropyLevel(quantile=quantile, compat=compat)
    trust = EntropyClip(low=clip, high=clip, strength=bounds, dual=10.0, level=level)
    by_token = RelativeAdvantage(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))
    return Algorithm(
        sampling=Rollouts(
            group=group,
            adapt=EntropyTemperature(strength=heat, quantile=quantile, compat=compat) if heat else None,
            select=[MixedGroups()],
            refills=refills,
        ),
        reward=SumOfRewards(terms=[OutcomeReward(scale=2, shift=-1), OverlongPenalty()]),
        credit=BoundedAdvantage(credit=by_token, otherwise=RelativeAdvantage()),
        objective=Surrogate(
            ratio=TokenRatio(), trust=EntropyAdvantage(trust=trust, strength=advantage), aggregate=TokenMean()
        ),
    )


class EntropyLevel(Part):
    """`level(experience) -> [B, T]` h in [-1, 1]: the level of each decision's current log-entropy in the whole batch.

    -1 is the batch's lowest, 0 the pivot (a quantile), 1 the highest; see `ops.entropy_level`. compat "released" is
    |h|, as the published code of HAPO computes it: its low-entropy rules then apply at the pivot alone.
    arXiv:2509.16591.
    """

    quantile: float = 0.8
    compat: Literal["text", "released"] = "text"

    full_batch_outputs = frozenset({"entropy"})

    def setup(self) -> None:
        if not 0 <= self.quantile <= 1:
            raise ValueError(f"methods.hapo.EntropyLevel: quantile must be in [0, 1], found {self.quantile}")

    def forward(self, experience: Experience) -> Tensor:
        full_batch, evaluation = full_batch_of(experience)
        if not full_batch.mask.any():
            return experience.local_rows(torch.zeros_like(evaluation.entropy))
        scale = ops.entropy_scale(evaluation.entropy[full_batch.mask], self.quantile)
        return experience.local_rows(ops.entropy_level(evaluation.entropy, *scale, released=self.compat == "released"))


class EntropyClip(SurrogateTerm):
    """PPO's clip with bounds that depend on the entropy level h of each decision:

        h > 0 (undecided):  1 - low                      to  1 + high (1 + strength h)
        h <= 0 (sure):      1 - low (1 - strength h)     to  1 + high

    so that rare choices can gain probability at high entropy, and choices can lose it at low. strength 0 is `Clip`.
    dual: as in `Clip`. Source: asymmetric adaptive clipping in HAPO, arXiv:2509.16591.
    """

    low: float = 0.2
    high: float = 0.2
    strength: float = 1.0
    dual: float | None = None
    level: EntropyLevel = EntropyLevel()

    zero_at_zero_advantage = True

    def setup(self) -> None:
        if not 0 <= self.low <= 1 or self.high < 0 or self.strength < 0:
            raise ValueError(
                "methods.hapo.EntropyClip: need 0 <= low <= 1, high >= 0 and strength >= 0, found "
                f"{self.low}, {self.high} and {self.strength}"
            )
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"methods.hapo.EntropyClip: dual must be > 1, found {self.dual}")

    def ranges(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the distances below and above 1 that the ratio may reach, at each entropy level."""
        low = self.low * (1 - self.strength * level.clamp(max=0))
        return low, self.high * (1 + self.strength * level.clamp(min=0))

    def terms(self, log_ratio: Tensor, advantage: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self.ranges(level)
        return pessimistic(log_ratio.exp(), advantage, 1 - low, 1 + high, self.dual)

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        return self.terms(log_ratio, experience.advantage, self.level(experience))


class EntropyAdvantage(SurrogateTerm):
    """`trust` with an advantage that depends on the entropy level h: A (1 + strength h) where

        h > 0 (undecided) and the ratio has left the inner half of the trust region, or
        h <= 0 (sure) and the ratio is still in it,

    and A elsewhere. The inner half is 1 - low/2 < r < 1 + high/2 with the ranges of `trust`. At strength 1 the
    decisions of lowest entropy have no gradient inside it. Source: differential advantage redistribution in HAPO,
    arXiv:2509.16591.
    """

    trust: EntropyClip = EntropyClip()
    strength: float = 1.0

    zero_at_zero_advantage = True

    def setup(self) -> None:
        if not 0 <= self.strength <= 1:
            raise ValueError(f"methods.hapo.EntropyAdvantage: strength must be in [0, 1], found {self.strength}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        level = self.trust.level(experience)
        low, high = self.trust.ranges(level)
        ratio = log_ratio.detach().exp()
        inside = (ratio > 1 - low / 2) & (ratio < 1 + high / 2)
        follows = torch.where(level > 0, ~inside, inside)
        factor = torch.where(follows, 1 + self.strength * level, 1)
        return self.trust.terms(log_ratio, experience.advantage * factor, level)


class BoundedAdvantage(Credit):
    """`credit`, except `otherwise` in the groups in which some |A| reaches `limit`. within: the grouping."""

    credit: Credit
    otherwise: Credit
    limit: float = 5.0
    within: Grouping = SamePrompt()

    def setup(self) -> None:
        if self.limit <= 0:
            raise ValueError(f"methods.hapo.BoundedAdvantage: limit must be > 0, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        advantage = self.credit(experience)
        most = -ops.group_least(-ops.row_size(advantage, experience.mask), self.within(experience))
        return torch.where((most < self.limit)[:, None], advantage, self.otherwise(experience))
