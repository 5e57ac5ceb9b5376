"""Objectives that watch the policy's entropy: how an update changes it, and where a decision stands in it."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polopt.experience import Evaluation, Experience
from polopt.objectives.parts import Ratio, Weight, whole_of
from polopt.objectives.ratio import Token


def entropy_change(
    push: Float[Tensor, "*N"],
    logp: Float[Tensor, "*N"],
    entropy: Float[Tensor, "*N"],
    entropy_slope: Float[Tensor, "*N"] | None = None,
) -> Float[Tensor, "*N"]:
    """How a decision's entropy H changes, to first order, when its choice a is pushed: logits move by
    push (e_a - pi), as the score function of push = A r moves them.

        dH = -push [ pi_a (log pi_a + H) - sum_b pi_b^2 (log pi_b + H) ]        exact; the sum is `entropy_slope`
        dH ~ -push (1 - pi_a) (log pi_a + H)                                    the score of STEER, if that is None
    """
    surprise = logp + entropy
    if entropy_slope is None:
        return push * torch.expm1(logp) * surprise
    return -push * (logp.exp() * surprise - entropy_slope)


class SteadyEntropy(Weight):
    """Less weight on decisions whose update would change the entropy more. Source: STEER, arXiv:2510.10150.

    With d = |dH| of `entropy_change` for push = A r, and its extremes over the decisions of the whole batch,

        linear:       w = high - (high - low) (d - min d) / (max d - min d);  (low + high) / 2 if all d are equal
        exponential:  w = low^(d / max(max d, floor));  high is not used

    score "paper" reads the entropy alone, "exact" also what the policy says over the whole vocabulary
    (`extras.entropy_slope`). low: 0 <= low <= 1, for the largest change; exponential needs low > 0. ratio: whose r.
    """

    score: Literal["paper", "exact"] = "paper"
    map: Literal["exponential", "linear"] = "exponential"
    low: float = 0.8
    high: float = 1.2
    floor: float = 0.02
    ratio: Ratio = Token()

    needs = frozenset({"advantage"})

    @property
    def surveys(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"logp", "entropy"} | ({"extras.entropy_slope"} if self.score == "exact" else set()))

    def setup(self) -> None:
        allowed = 0 <= self.low <= 1 and (self.low > 0 or self.map == "linear")
        if not allowed or self.high < self.low or self.floor <= 0:
            raise ValueError(
                "objectives.SteadyEntropy: need 0 <= low <= 1 (0 < low if exponential), high >= low and floor > 0, "
                f"found {self.low}, {self.high}, {self.floor}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        whole, said = whole_of(experience)
        push = whole.advantage * self.ratio(whole, said).exp()
        slope = said.extras["entropy_slope"] if self.score == "exact" else None
        change = entropy_change(push, said.logp, said.entropy, slope).abs()
        weights = torch.ones_like(change)
        weights[whole.mask] = self._map(change[whole.mask])
        return experience.mine(weights)

    def _map(self, change: Tensor) -> Tensor:
        """[N] weights of all decisions."""
        if not change.numel():
            return change
        most = change.max()
        if self.map == "exponential":
            return (math.log(self.low) * change / most.clamp(min=self.floor)).exp()
        least = change.min()
        share = torch.where(most > least, (change - least) / (most - least), 0.5)
        return self.high - (self.high - self.low) * share
