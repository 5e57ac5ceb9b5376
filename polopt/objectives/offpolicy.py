"""Parts for REINFORCE on off-policy data: gates, importance weights, and regularisers towards the behaviour policy."""

from __future__ import annotations

from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Ratio, Regulariser, Weight
from polopt.objectives.ratio import TokenRatio
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


class SamplerKL(Regulariser):
    """coefficient * k2 to the behaviour policy: (logp - rollout_logp)^2 / 2 at each decision. OPMD's regulariser."""

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return ops.kl_estimate("k2", evaluation.logp, experience.rollout_logp)


class ForwardKL(Regulariser):
    """-coefficient * logp: KL(sampler || policy) on the sampler's decisions, up to a constant. This is the
    likelihood of all of them, good and bad: the same as raising every advantage by the coefficient, as AsymRE does."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return -evaluation.logp
