"""Trust regions: how far one batch of experience may move the policy."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Evaluation
from polopt.objectives.parts import Trust


class Score(Trust):
    """The score function alone: -A_t logp_t. No ratio, no limit; with A = 1 it is the negative log-likelihood."""

    silent_at_zero = True

    def forward(self, log_ratio: Tensor, advantage: Tensor, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        return -advantage * evaluation.logp, torch.zeros_like(advantage)


class Unlimited(Trust):
    """The plain surrogate -A_t r_t: importance-weighted, without a limit."""

    silent_at_zero = True

    def forward(self, log_ratio: Tensor, advantage: Tensor, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        return -advantage * log_ratio.exp(), torch.zeros_like(advantage)


class Clip(Trust):
    """PPO's pessimistic clip: max(-A r, -A clip(r, 1 - low, 1 + high)), arXiv:1707.06347.

    dual, if given (> 1), bounds the term of a negative advantage: min(that, -A dual), arXiv:1912.09729.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None

    silent_at_zero = True

    def setup(self) -> None:
        if not 0 <= self.low <= 1 or self.high < 0:
            raise ValueError(f"objectives.Clip: need 0 <= low <= 1 and high >= 0, found {self.low}, {self.high}")
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"objectives.Clip: dual must be > 1, found {self.dual}")

    def forward(self, log_ratio: Tensor, advantage: Tensor, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        ratio = log_ratio.exp()
        free, held = -advantage * ratio, -advantage * ratio.clamp(1 - self.low, 1 + self.high)
        terms, stopped = torch.maximum(free, held), held > free
        if self.dual is not None:
            bound = torch.where(advantage < 0, -advantage * self.dual, torch.inf)
            terms, stopped = torch.minimum(terms, bound), stopped | (terms > bound)
        return terms, stopped.to(advantage.dtype)


class ClipWeight(Trust):
    """Clip the importance weight, never the gradient: -sg(clip(r, 1 - low, 1 + high)) A logp.

    low = None sets no lower bound. Source: CISPO in MiniMax-M1, arXiv:2506.13585.
    """

    low: float | None = None
    high: float = 4.0

    silent_at_zero = True

    def forward(self, log_ratio: Tensor, advantage: Tensor, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        ratio = log_ratio.detach().exp()
        weight = ratio.clamp(0 if self.low is None else 1 - self.low, 1 + self.high)
        return -weight * advantage * evaluation.logp, (weight != ratio).to(advantage.dtype)
