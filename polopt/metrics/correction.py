"""Accuracy of second attempts, and the changes from first to second."""

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
    """Computes the change of accuracy from first to second attempts: whether each was right, [B], and each row's
    weight.

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


def attempts(reward: Tensor, turn: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the reward of turn 0 and of the last turn, [B], and whether there were several turns. reward: [B, T].

    A row that stopped after one turn keeps its answer: both are the same.
    """
    reward = torch.where(mask, reward, 0)
    last = torch.where(mask, turn, -1).amax(1)
    first = torch.where(turn == 0, reward, 0).sum(1)
    return first, torch.where(turn == last[:, None], reward, 0).sum(1), last > 0
