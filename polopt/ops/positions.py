"""Positions in rows [B, T]: the last decision, the next one, those of the largest scores, those of a turn."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


def take(x: Tensor, index: Tensor) -> Tensor:
    """Gathers the rows of x [N, ...] at an index [*I], which may repeat, to [*I, ...]. The gradient of a repeated row
    is summed in a fixed order: advanced indexing on a CPU sums it in the order in which its threads arrive."""
    if x.device.type != "cpu":  # here indexing sorts, and index_select adds as threads arrive
        return x[index]
    return x.index_select(0, index.reshape(-1)).view(*index.shape, *x.shape[1:])


def top_share(score: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], share: float) -> Bool[Tensor, "B T"]:
    """Selects the largest scores of each row: round(share n) of its n decisions, at least one; ties: the earliest."""
    order = torch.where(mask, score, -torch.inf).argsort(dim=1, descending=True, stable=True)
    count = (share * mask.sum(1, keepdim=True)).round().clamp(min=1)
    return mask & (order.argsort(1) < count)


def turns(
    turn: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "turns"], Int[Tensor, "turns"]]:
    """Numbers the turns with decisions, row by row and in order: returns each decision's turn number (0 elsewhere),
    and each turn's row and number of decisions."""
    row = torch.arange(len(turn), device=turn.device)[:, None].expand(turn.shape)
    decided = turn[mask].long()
    first = decided.amin() if decided.numel() else 0
    span = decided.amax() - first + 1 if decided.numel() else 1
    found, index, size = torch.unique(row[mask] * span + decided - first, return_inverse=True, return_counts=True)
    return torch.zeros_like(row).masked_scatter(mask, index), found // span, size


def turn_mean(x: Float[Tensor, "B T"], turn: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "turns"]:
    """Mean over the decisions of each turn, numbered as in `turns`."""
    number, _, size = turns(turn, mask)
    return x.new_zeros(len(size)).index_add(0, number[mask], x[mask]) / size


def turn_first(
    x: Shaped[Tensor, "B T"], turn: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Shaped[Tensor, "turns"]:
    """x at the first decision of each turn, numbered as in `turns`."""
    number, _, size = turns(turn, mask)
    _, place = number[mask].sort(stable=True)
    return x[mask][place[size.cumsum(0) - size]]


def turn_place(row: Int[Tensor, "turns"]) -> Int[Tensor, "turns"]:
    """Number of turns of the same row before each turn, given the turns' rows in the order of `turns`."""
    at = torch.arange(len(row), device=row.device)
    begins = torch.ones_like(row, dtype=torch.bool)
    begins[1:] = row[1:] != row[:-1]
    return at - torch.where(begins, at, 0).cummax(0).values


def last_decision(mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Returns a mask that is True at each row's last decision only."""
    after = mask.flip(1).cumsum(1).flip(1)
    return mask & (after == 1)


def next_decision(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Returns, at each decision, x at the row's next decision; 0 at the last one and outside the mask."""
    T = mask.shape[1]
    at = torch.where(mask, torch.arange(T, device=mask.device), T)
    # The first decision at or after each column, shifted by one.
    after = torch.cat([at.flip(1).cummin(1).values.flip(1)[:, 1:], at.new_full((len(at), 1), T)], 1)
    padded = torch.cat([torch.where(mask, x, 0), x.new_zeros(len(x), 1)], 1)
    return torch.where(mask, padded.gather(1, after), 0)
