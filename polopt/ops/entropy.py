"""Levels of entropy on a scale, and temperatures that depend on them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from polopt.support import Support

# Entropies below CERTAIN count as equal, and so do log-entropies closer than ALIKE.
CERTAIN, ALIKE = 1e-8, 1e-4


def entropy_scale(entropy: Float[Tensor, "N"], quantile: float) -> tuple[float, float, float]:
    """Lowest, pivot and highest logarithm of N >= 1 entropies; the pivot is the nearest value to their quantile."""
    log = entropy.clamp(min=CERTAIN).log()
    pivot = log.kthvalue(round(quantile * (len(log) - 1)) + 1).values
    lowest, middle, highest = torch.stack([log.min(), pivot, log.max()]).double().tolist()
    return lowest, middle, highest


def entropy_level(
    entropy: Float[Tensor, "*N"], lowest: float, pivot: float, highest: float, *, released: bool = False
) -> Float[Tensor, "*N"]:
    """Level h in [-1, 1] of log-entropies z on the scale of `entropy_scale`,

        h = (z - pivot) / (highest - pivot) above the pivot, (z - pivot) / (pivot - lowest) below it, bounded.

    HAPO (arXiv:2509.16591) divides by a standard deviation about the pivot first, which cancels. released: |h|, as its
    published code computes it, where both sides are divided by a number of their own sign.
    """
    z = entropy.clamp(min=CERTAIN).log() - pivot
    h = torch.where(z > 0, z / max(highest - pivot, ALIKE), z / max(pivot - lowest, ALIKE)).clamp(-1, 1)
    return h.abs() if released else h


def temperatures(support: Support, entropy: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Computes the temperature of each decision from `entropy`, its entropy at the support's temperature alone."""
    rule = support.by_entropy
    if rule is None:
        return torch.full_like(entropy, support.temperature)
    h = entropy_level(entropy, rule.lowest, rule.pivot, rule.highest, released=rule.released)
    return support.temperature * (1 + rule.strength * h)
