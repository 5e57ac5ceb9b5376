"""Weights on the terms of tokens."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Ratio, Weight
from polopt.objectives.ratios import TokenRatio
from polopt.ops import LIMIT
from polopt.setting_types import Unbounded


class ImportanceWeight(Weight):
    """Importance ratio to the behaviour policy as a weight; within [1 - low, 1 + high] where these are given.

    ratio: a decision's, or that of its row.
    """

    low: float | None = None
    high: Unbounded | None = None
    ratio: Ratio = TokenRatio()

    def setup(self) -> None:
        if not 0 <= (self.low or 0) <= 1 or (self.high or 0) < 0:
            raise ValueError(
                f"objectives.ImportanceWeight: need 0 <= low <= 1 and high >= 0, found {self.low}, {self.high}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        ratio = self.ratio(experience, evaluation).exp()
        low, high = self.low, self.high
        return ratio.clamp(min=0 if low is None else 1 - low, max=None if high is None else 1 + high)


class ExponentialAdvantageWeight(Weight):
    """exp(A / temperature): good decisions count more. The exponent stays within +-20."""

    temperature: float = 1.0

    reads = frozenset({"advantage"})

    def setup(self) -> None:
        if self.temperature <= 0:
            raise ValueError(
                f"objectives.ExponentialAdvantageWeight: temperature must be > 0, found {self.temperature}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return (experience.advantage / self.temperature).clamp(-LIMIT, LIMIT).exp()


class TruncatedImportance(Weight):
    """Importance weight of the old policy to the behaviour policy: w = min(exp(old_logp - rollout_logp), cap);
    `ImportanceWeight` takes the current policy.

    unit "token" weights each token by its own ratio, "row" each row by the product over its
    decisions. Truncation trades a little bias for bounded variance. Source: truncated importance sampling,
    Ionides 2008; for mismatched rollout engines, F. Yao et al. 2025.
    """

    cap: Unbounded = 2.0
    unit: Literal["token", "row"] = "token"

    reads = frozenset({"rollout_logp", "old_logp"})

    def setup(self) -> None:
        if self.cap <= 0:
            raise ValueError(f"objectives.TruncatedImportance: cap must be > 0, found {self.cap}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        log_ratio = torch.where(experience.mask, experience.old_logp - experience.rollout_logp, 0)
        if self.unit == "row":
            log_ratio = log_ratio.sum(1, keepdim=True).expand_as(log_ratio)
        return log_ratio.clamp(-LIMIT, LIMIT).exp().clamp(max=self.cap)


class ProbabilityWeight(Weight):
    """w = p, the policy's own probability of the decision: improbable decisions have no gradient.

    On demonstrations it cancels the 1/p in the gradient of the likelihood. Source: dynamic fine-tuning,
    arXiv:2508.05629.
    """

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return evaluation.logp.detach().exp()
