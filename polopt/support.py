"""Supports: the distribution that a log-probability belongs to."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from polopt.errors import UserError


class SupportError(UserError, ValueError):
    """Two log-probabilities were taken over different supports, so that their ratio would be biased."""


@dataclasses.dataclass(frozen=True)
class ByEntropy:
    """A temperature T (1 + strength h) that follows the entropy of the choices before it.

    h in [-1, 1] is the position of the logarithm of that entropy between three levels (`ops.entropy_level`).

    strength: how far the temperature follows, in [0, 1).
    lowest: the level at which h is -1.
    pivot: the level at which h is 0; h is linear between the levels.
    highest: the level at which h is 1.
    released: |h| instead of h, as HAPO's own program has it.
    """

    strength: float
    lowest: float
    pivot: float
    highest: float
    released: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.strength < 1:
            raise ValueError(f"strength must be in [0, 1), found {self.strength}")
        if not -math.inf < self.lowest <= self.pivot <= self.highest < math.inf:
            raise ValueError(f"need lowest <= pivot <= highest, found {self.lowest}, {self.pivot} and {self.highest}")


@dataclasses.dataclass(frozen=True)
class Support:
    """The distribution that a log-probability belongs to: the policy's own, reshaped by the sampler.

    temperature: logits are divided by it, > 0. top_k: keep the k likeliest choices, 0 keeps all.
    top_p: keep the smallest set of likeliest choices whose mass reaches p, 1 keeps all.
    The kept choices are renormalised. top_k is applied before top_p, both after the temperature.
    by_entropy: gives each decision a temperature of its own around that one, by the entropy that its choices have at
    that one. The sampler records it in `extras["temperature"]` [B, T], and every evaluation of the decision uses the
    recorded one, so that a ratio compares two policies at one temperature.
    highest: the largest log-probability that is possible, rounding in float32 included.
    """

    highest: ClassVar[float] = 1e-4

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    by_entropy: ByEntropy | None = None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be > 0 and finite, found {self.temperature}; greedy is top_k=1")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 keeps all), found {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], found {self.top_p}")

    @property
    def truncated(self) -> bool:
        """Tests whether some choices can never be sampled."""
        return self.top_k > 0 or self.top_p < 1


@dataclasses.dataclass(frozen=True)
class Density(Support):
    """Log-densities of continuous decisions, which may be above 0, under the policy's own distribution."""

    highest: ClassVar[float] = float("inf")


# The policy's own distribution.
PLAIN = Support()
