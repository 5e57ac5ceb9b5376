"""Weights on decisions: correction factors without gradient."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Weight
from polopt.ops import LIMIT
from polopt.setting_types import Unbounded


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
