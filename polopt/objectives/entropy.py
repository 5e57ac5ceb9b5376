"""Parts that depend on the policy's entropy: its change by an update, and its level relative to other decisions."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Ratio, SurrogateTerm, Weight, whole_of
from polopt.objectives.ratio import TokenRatio
from polopt.objectives.trust import pessimistic
from polopt.part import Part


def entropy_change(
    push: Float[Tensor, "*N"],
    logp: Float[Tensor, "*N"],
    entropy: Float[Tensor, "*N"],
    entropy_slope: Float[Tensor, "*N"] | None = None,
) -> Float[Tensor, "*N"]:
    """First-order change of a decision's entropy H when its logits move by push (e_a - pi), a being its choice, as
    under the score function of push = A r.

        dH = -push [ pi_a (log pi_a + H) - sum_b pi_b^2 (log pi_b + H) ]        exact; the sum is `entropy_slope`
        dH ~ -push (1 - pi_a) (log pi_a + H)                                    the score of STEER, if that is None
    """
    surprise = logp + entropy
    if entropy_slope is None:
        return push * torch.expm1(logp) * surprise
    return -push * (logp.exp() * surprise - entropy_slope)


class STEERWeight(Weight):
    """Less weight on decisions whose update would change the entropy more. Source: STEER, arXiv:2510.10150.

    With d = |dH| of `entropy_change` for push = A r, and its extremes over the decisions of the whole batch,

        linear:       w = high - (high - low) (d - min d) / (max d - min d);  (low + high) / 2 if all d are equal
        exponential:  w = low^(d / max(max d, floor));  high is not used

    score "paper" uses the entropy alone, "exact" also a sum over the whole vocabulary (`extras.entropy_slope`).
    low: 0 <= low <= 1, for the largest change; exponential needs low > 0. ratio: computes r.
    """

    score: Literal["paper", "exact"] = "paper"
    map: Literal["exponential", "linear"] = "exponential"
    low: float = 0.8
    high: float = 1.2
    floor: float = 0.02
    ratio: Ratio = TokenRatio()

    reads = frozenset({"advantage"})

    @property
    def full_batch_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"logp", "entropy"} | ({"extras.entropy_slope"} if self.score == "exact" else set()))

    def setup(self) -> None:
        allowed = 0 <= self.low <= 1 and (self.low > 0 or self.map == "linear")
        if not allowed or self.high < self.low or self.floor <= 0:
            raise ValueError(
                "objectives.STEERWeight: need 0 <= low <= 1 (0 < low if exponential), high >= low and floor > 0, "
                f"found {self.low}, {self.high}, {self.floor}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        whole, said = whole_of(experience)
        push = whole.advantage * self.ratio(whole, said).exp()
        slope = said.extras["entropy_slope"] if self.score == "exact" else None
        change = entropy_change(push, said.logp, said.entropy, slope).abs()
        weights = torch.ones_like(change)
        weights[whole.mask] = self._map(change[whole.mask])
        return experience.local_rows(weights)

    def _map(self, change: Tensor) -> Tensor:
        """Computes the weights [N] of all decisions."""
        if not change.numel():
            return change
        most = change.max()
        if self.map == "exponential":
            return (math.log(self.low) * change / most.clamp(min=self.floor)).exp()
        least = change.min()
        share = torch.where(most > least, (change - least) / (most - least), 0.5)
        return self.high - (self.high - self.low) * share


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
            raise ValueError(f"objectives.EntropyLevel: quantile must be in [0, 1], found {self.quantile}")

    def forward(self, experience: Experience) -> Tensor:
        whole, said = whole_of(experience)
        if not whole.mask.any():
            return experience.local_rows(torch.zeros_like(said.entropy))
        scale = ops.entropy_scale(said.entropy[whole.mask], self.quantile)
        return experience.local_rows(ops.entropy_level(said.entropy, *scale, released=self.compat == "released"))


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
                "objectives.EntropyClip: need 0 <= low <= 1, high >= 0 and strength >= 0, found "
                f"{self.low}, {self.high} and {self.strength}"
            )
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"objectives.EntropyClip: dual must be > 1, found {self.dual}")

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
            raise ValueError(f"objectives.EntropyAdvantage: strength must be in [0, 1], found {self.strength}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        level = self.trust.level(experience)
        low, high = self.trust.ranges(level)
        ratio = log_ratio.detach().exp()
        inside = (ratio > 1 - low / 2) & (ratio < 1 + high / 2)
        follows = torch.where(level > 0, ~inside, inside)
        factor = torch.where(follows, 1 + self.strength * level, 1)
        return self.trust.terms(log_ratio, experience.advantage * factor, level)
