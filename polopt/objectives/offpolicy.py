"""Parts for REINFORCE on off-policy data: gates, importance weights, and regularisers towards the behaviour policy."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Ratio, Regulariser, Weight
from polopt.objectives.ratio import TokenRatio
from polopt.ops import LIMIT
from polopt.setting_types import Unbounded


class RatioGate(Weight):
    """1 where a decision counts, 0 where its ratio r to the behaviour policy is outside the allowed range.

    side: "one" excludes A > 0 with r > 1 + high and A < 0 with r < 1 - low, whose gradient PPO's clip removes. "two"
    excludes every r outside [1 - low, 1 + high]. "ring" is "two", but includes decisions so far on the other side
    that their gradient points back: A > 0 with r <= 1 - outer[0], A < 0 with r >= 1 + outer[1]. ratio: a decision's, or
    that of its row. Source: REC, arXiv:2509.24203.
    """

    side: Literal["one", "two", "ring"] = "one"
    low: float = 0.2
    high: float = 0.2
    outer: tuple[float, float] = (0.6, 2.0)
    ratio: Ratio = TokenRatio()

    reads = frozenset({"advantage"})

    def setup(self) -> None:
        if not 0 <= self.low <= 1 or self.high < 0:
            raise ValueError(f"objectives.RatioGate: need 0 <= low <= 1 and high >= 0, found {self.low}, {self.high}")
        if self.side == "ring" and not (self.low <= self.outer[0] <= 1 and self.high <= self.outer[1]):
            raise ValueError(
                f"objectives.RatioGate: outer must lie outside low and high, with outer[0] <= 1, found {self.outer}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        ratio, advantage = self.ratio(experience, evaluation).exp(), experience.advantage
        above, below = ratio > 1 + self.high, ratio < 1 - self.low
        good, bad = advantage > 0, advantage < 0
        if self.side == "one":
            return (~((above & good) | (below & bad))).to(ratio.dtype)
        back = (good & (ratio <= 1 - self.outer[0])) | (bad & (ratio >= 1 + self.outer[1]))
        return (~(above | below) | (back & (self.side == "ring"))).to(ratio.dtype)


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
