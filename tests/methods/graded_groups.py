"""Batches of groups with graded rewards, and the same row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import polopt as po

SEEDS = range(5)


def graded(
    seed: int, groups: int = 6, size: int = 8, levels: int = 2, shuffled: bool = True, **extras: Any
) -> po.Experience:
    """Rows of one decision; returns on so many levels in [0, 1], groups of success rates of their own."""
    g = torch.Generator().manual_seed(seed)
    rate = torch.rand(groups, 1, generator=g).expand(groups, size).double()
    returns = (torch.bernoulli(rate.expand(levels - 1, groups, size), generator=g).sum(0) / (levels - 1)).flatten()
    group = torch.arange(groups).repeat_interleave(size)
    order = torch.randperm(len(group), generator=g) if shuffled else torch.arange(len(group))
    extras = {"x": torch.randn(len(group), generator=g, dtype=torch.double), **extras}
    batch = po.Experience(
        mask=torch.ones(len(group), 1).bool(), reward=returns, outcome=returns, group=group, extras=extras
    )
    return batch[order]


def by_group(batch: po.Experience) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for i, group in enumerate(batch.group.tolist()):
        rows.setdefault(group, []).append(i)
    return rows


def close(found: torch.Tensor, expected: list[float]) -> None:
    np.testing.assert_allclose(found[:, 0].numpy(), expected, rtol=1e-11, atol=1e-12)
