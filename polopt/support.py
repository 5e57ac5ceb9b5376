"""Which distribution a log-probability belongs to."""

from __future__ import annotations

import dataclasses


class SupportError(ValueError):
    """Two log-probabilities were taken over different supports, so their ratio would be a bias."""


@dataclasses.dataclass(frozen=True)
class Support:
    """Which distribution a log-probability belongs to: the policy's own, reshaped by the sampler.

    temperature: logits are divided by it, > 0. top_k: keep the k likeliest choices, 0 keeps all.
    top_p: keep the smallest set of likeliest choices whose mass reaches p, 1 keeps all.
    The kept choices are renormalised. top_k is applied before top_p, both after the temperature.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be > 0, found {self.temperature}; greedy is top_k=1")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 keeps all), found {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], found {self.top_p}")

    @property
    def truncated(self) -> bool:
        """True if some choices can never be sampled."""
        return self.top_k > 0 or self.top_p < 1


# The policy's own distribution.
PLAIN = Support()
