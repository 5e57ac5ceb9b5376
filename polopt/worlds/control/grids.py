"""Distances on many grids at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

# Row and column of the neighbours of a cell: down, up, right, left.
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))
# Sweeps between looks at whether anything still changes.
SWEEPS = 8


def neighbours(values: Tensor, fill: float = math.inf) -> Tensor:
    """Returns the values [4, N, H, W] of the neighbours of each cell of [N, H, W], in the order of `MOVES`; `fill`
    beyond the edge."""
    wide = pad(values, (1, 1, 1, 1), value=fill)
    return torch.stack([wide[:, 2:, 1:-1], wide[:, :-2, 1:-1], wide[:, 1:-1, 2:], wide[:, 1:-1, :-2]])


def cost_to_go(cost: Tensor, target: Tensor) -> Tensor:
    """Returns the least total cost of entered cells on a way from each cell to a target, [N, H, W].

        V(c) = min over neighbours n of cost(n) + V(n),    V(target) = 0

    cost: [N, H, W], >= 0, of entering a cell; infinite where it is blocked. target: [N, H, W] bool.
    """
    value = torch.where(target, 0.0, math.inf)
    blocked = cost.isinf()
    while True:
        before = value
        for _ in range(SWEEPS):
            wide = pad(value + cost, (1, 1, 1, 1), value=math.inf)
            least = torch.minimum(
                torch.minimum(wide[:, 2:, 1:-1], wide[:, :-2, 1:-1]),
                torch.minimum(wide[:, 1:-1, 2:], wide[:, 1:-1, :-2]),
            )
            value = torch.minimum(value, least)
        value = value.masked_fill(blocked & ~target, math.inf)
        if torch.equal(value, before):
            return value


def cells(shape: tuple[int, int], place: Tensor) -> Tensor:
    """Returns masks [N, H, W] of single cells, by row and column [N, 2]."""
    found = torch.zeros(len(place), *shape, dtype=torch.bool, device=place.device)
    found[torch.arange(len(place), device=place.device), place[:, 0], place[:, 1]] = True
    return found
