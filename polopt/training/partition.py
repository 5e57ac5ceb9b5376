"""Partition of work among several workers, and the joining of their results into one batch."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.experience import Experience


def shares(weights: Sequence[int], count: int) -> list[Tensor]:
    """Partitions things among `count` workers. Returns the positions [n] of each one's things, in order.

    The heaviest thing goes first, each to the worker with the smallest load so far: no share is heavier than 4/3 of the
    best possible (Graham 1969). Things of weight 0 are left out. The result is the same in every process.
    """
    found: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, player) for player in range(count)]
    for thing in sorted(range(len(weights)), key=lambda i: -weights[i]):
        if weights[thing]:
            load, player = heapq.heappop(heap)
            found[player].append(thing)
            heapq.heappush(heap, (load + weights[thing], player))
    return [torch.tensor(sorted(share), dtype=torch.long) for share in found]


def joined(parts: Sequence[Experience], places: Sequence[Tensor]) -> Experience:
    """Joins the workers' parts into one batch: their rows in the order of `places`, [B] each; equal ones stay in the
    order of the workers. Group numbers are the rows' own and mean the same in all parts."""
    batch = Experience.join(parts)
    return batch[torch.cat(list(places)).argsort(stable=True).to(batch.device)]
