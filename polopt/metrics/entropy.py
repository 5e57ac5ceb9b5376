"""Relation of reward and entropy, and first-order changes of entropy: the laws of arXiv:2505.22617."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class EntropyLaw(NamedTuple):
    """R = b - a e^H, with H in nats. fit: the share of R's variance that the law explains (R squared)."""

    a: float
    b: float
    fit: float

    @property
    def ceiling(self) -> float:
        """Reward at zero entropy, H = 0."""
        return self.b - self.a

    def reward(self, entropy: float) -> float:
        return self.b - self.a * math.exp(entropy)


def entropy_law(entropy: Sequence[float], reward: Sequence[float]) -> EntropyLaw:
    """Fits the law to the pairs (H, R) of one run by least squares.

    Raises:
        ValueError: fewer than two pairs, lists of different lengths, or pairs that do not differ in H.
    """
    h, r = torch.tensor(entropy, dtype=torch.double), torch.tensor(reward, dtype=torch.double)
    if h.shape != r.shape or len(set(h.tolist())) < 2:
        raise ValueError(
            f"entropy_law: needs pairs of entropy and reward, at least two of them with different entropies, found "
            f"{len(h)} entropies and {len(r)} rewards"
        )
    x, y = h.exp() - h.exp().mean(), r - r.mean()
    slope = (x @ y) / (x @ x)
    left = (y - slope * x).square().sum()
    total = y.square().sum()
    fit = 1 - (left / total).item() if total > 0 else 1.0
    return EntropyLaw(-slope.item(), (r.mean() - slope * h.exp().mean()).item(), fit)


def entropy_shift(logp: Float[Tensor, "*N V"], step: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """-Cov_{a ~ pi}(log pi(a), step(a)): the first-order change of the entropy by a step of the logits.

    logp: normalised. The natural gradient steps by eta A(a), the vanilla policy gradient by eta pi(a) A(a), for a
    centred advantage A.
    """
    p = logp.exp()
    centred = step - (p * step).sum(-1, keepdim=True)
    return -(p * logp.clamp(min=torch.finfo(logp.dtype).min) * centred).sum(-1)
