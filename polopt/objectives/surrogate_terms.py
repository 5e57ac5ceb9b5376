"""Surrogate terms: how far a batch of experience may move the policy."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import SurrogateTerm
from polopt.setting_types import Unbounded


class PolicyGradient(SurrogateTerm):
    """The score function alone: -A_t logp_t. No ratio, no limit; A = 1 gives the negative log-likelihood."""

    binds = "decision"

    zero_at_zero_advantage = True

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        return -experience.advantage * evaluation.logp, torch.zeros_like(experience.advantage)


class Unclipped(SurrogateTerm):
    """The plain surrogate -A_t r_t: importance-weighted, without a limit."""

    binds = "decision"

    zero_at_zero_advantage = True

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        return -experience.advantage * log_ratio.exp(), torch.zeros_like(experience.advantage)


class SaturatedRatio(SurrogateTerm):
    """-A r / (r + bend): a saturating function of the ratio, in which small ratios have more weight.

    On rows whose behaviour log-probability is 0, r is the policy's probability p itself, and the slope in p is
    bend / (p + bend)^2 instead of 1. Source: policy shaping in LUFFY, arXiv:2504.14945.
    """

    bend: float = 0.1

    zero_at_zero_advantage = True

    def setup(self) -> None:
        if self.bend <= 0:
            raise ValueError(f"objectives.SaturatedRatio: bend must be > 0, found {self.bend}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        ratio = log_ratio.exp()
        return -experience.advantage * ratio / (ratio + self.bend), torch.zeros_like(experience.advantage)


class Clip(SurrogateTerm):
    """PPO's pessimistic clip: max(-A r, -A clip(r, 1 - low, 1 + high)), arXiv:1707.06347.

    dual, if given (> 1), bounds the term of a negative advantage: min(that, -A dual), arXiv:1912.09729.
    """

    binds = "decision"

    low: float = 0.2
    high: Unbounded = 0.2
    dual: float | None = None

    zero_at_zero_advantage = True

    def setup(self) -> None:
        if not 0 <= self.low <= 1 or self.high < 0:
            raise ValueError(f"objectives.Clip: need 0 <= low <= 1 and high >= 0, found {self.low}, {self.high}")
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"objectives.Clip: dual must be > 1, found {self.dual}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        return pessimistic(log_ratio.exp(), experience.advantage, 1 - self.low, 1 + self.high, self.dual)


class ClipWeight(SurrogateTerm):
    """Policy gradient with a clipped importance weight, -sg(clip(r, 1 - low, 1 + high)) A logp: no gradient is clipped.

    low = None sets no lower bound. Source: CISPO in MiniMax-M1, arXiv:2506.13585.
    """

    low: float | None = None
    high: Unbounded = 4.0

    zero_at_zero_advantage = True

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        ratio, advantage = log_ratio.detach().exp(), experience.advantage
        weight = ratio.clamp(0 if self.low is None else 1 - self.low, 1 + self.high)
        return -weight * advantage * evaluation.logp, (weight != ratio).to(advantage.dtype)


def pessimistic(
    ratio: Tensor, advantage: Tensor, low: float | Tensor, high: float | Tensor, dual: float | None = None
) -> tuple[Tensor, Tensor]:
    """PPO's terms max(-A r, -A clip(r, low, high)), bounded by -A dual where A < 0; and 1 where a bound is active.

    ratio, advantage: [B, T]. low, high: bounds of the ratio itself, numbers or [B, T].
    """
    free, clipped = -advantage * ratio, -advantage * ratio.clamp(min=low).clamp(max=high)
    terms, stopped = torch.maximum(free, clipped), clipped > free
    if dual is not None:
        bound = torch.where(advantage < 0, -advantage * dual, torch.inf)
        terms, stopped = torch.minimum(terms, bound), stopped | (terms > bound)
    return terms, stopped.to(advantage.dtype)
