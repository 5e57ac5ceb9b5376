"""Ragged answers to a few prompts, and the gradient of a loss that is split over ranks and micro-batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import polopt as po

HORIZON = 9
# Ranks, and rows of a micro-batch.
SPLITS = [(2, 3), (4, 1)]


def experience(seed: int, prompts: int = 4, group: int = 4) -> tuple[po.Experience, Tensor]:
    """A batch with outcomes 0 and 1, and what the policy says of it now [B, T]. Every row decides something."""
    draw = torch.Generator().manual_seed(seed)
    rows = prompts * group
    mask = torch.arange(HORIZON) < torch.randint(1, HORIZON + 1, (rows, 1), generator=draw)
    logp = -torch.rand(rows, HORIZON, generator=draw, dtype=torch.float64) * 3

    def near(spread: float) -> Tensor:
        return -(logp + spread * torch.randn(rows, HORIZON, generator=draw, dtype=torch.float64)).abs()

    paid = (torch.rand(rows, generator=draw) < 0.5).double()
    fields: dict[str, Any] = {"rollout_logp": near(0.3), "ref_logp": near(0.5), "reward": paid, "outcome": paid}
    fields |= {"group": torch.arange(rows) // group, "turn": torch.where(mask, 0, -1)}
    return po.Experience(mask=mask, horizon=HORIZON, **fields), logp


def whole(algorithm: po.Algorithm, batch: po.Experience, logp: Tensor) -> Tensor:
    """polopt's own: the gradient [B, T] of the batch's loss."""
    leaf = logp.clone().requires_grad_()
    algorithm.objective(algorithm.with_advantages(batch), po.Evaluation(logp=leaf)).loss.backward()
    assert leaf.grad is not None
    return leaf.grad


def deal(rows: int, ranks: int, micro: int) -> list[list[Tensor]]:
    """By rank, the rows of each of its micro-batches."""
    return [list(share.split(micro)) for share in torch.arange(rows).chunk(ranks)]
