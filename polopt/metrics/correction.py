"""Second attempts: how often they are right, and what they change."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Correction(NamedTuple):
    """Shares of rows. first, second: right at the first and at the second attempt. delta: second - first, which is
    corrected - spoilt. corrected: wrong, then right. spoilt: right, then wrong."""

    first: float
    second: float
    delta: float
    corrected: float
    spoilt: float


def correction(first: Tensor, second: Tensor, weight: Tensor | None = None) -> Correction:
    """What second attempts changed: [B] whether each attempt was right, and how often each row counts (once).

    Raises:
        ValueError: nothing to count, or shapes that differ.
    """
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise ValueError(f"correction needs two attempts of B >= 1 rows, found {first.shape} and {second.shape}")
    weight = torch.ones_like(first, dtype=torch.float64) if weight is None else weight.double()
    first, second = first.bool(), second.bool()
    share = lambda rows: float(weight[rows].sum() / weight.sum())  # noqa: E731
    corrected, spoilt = share(~first & second), share(first & ~second)
    return Correction(share(first), share(second), corrected - spoilt, corrected, spoilt)


def attempts(paid: Tensor, turn: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[B, T] what was paid for each answer -> [B] paid for turn 0 and for the last turn, and whether there were two.

    A row that stopped after one turn keeps its answer: both are the same.
    """
    paid = torch.where(mask, paid, 0)
    last = torch.where(mask, turn, -1).amax(1)
    first = torch.where(turn == 0, paid, 0).sum(1)
    return first, torch.where(turn == last[:, None], paid, 0).sum(1), last > 0
