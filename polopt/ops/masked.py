"""Sums and means over the decisions of [B, T] tensors; values outside the mask, NaN included, do not enter."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_sum(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Sum over the decisions; values elsewhere, NaN included, do not enter."""
    return torch.where(mask, x, 0).sum()


def masked_mean(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Mean over the decisions; 0 if there are none."""
    return masked_sum(x, mask) / mask.sum().clamp(min=1)


def row_mean(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Mean over each row's decisions, exactly x where they are all equal; 0 for a row without decisions."""
    # Measured from the first decision: rounding must not separate rows of one advantage and different lengths.
    first = x.gather(1, mask.int().argmax(1, keepdim=True))
    above = torch.where(mask, x - first, 0).sum(1) / mask.sum(1).clamp(min=1)
    return torch.where(mask.any(1), first.squeeze(1) + above, 0)


def row_size(x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Largest |x| over each row's decisions; 0 for a row without decisions."""
    size = torch.where(mask, x, 0).abs()
    return size.amax(1) if size.shape[1] else size.new_zeros(len(size))


def reduce(
    terms: Float[Tensor, "B T"], weights: Float[Tensor, "B T"], denominator: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """Reduces terms to sum_bt w_bt terms_bt / denominator, with decisions of weight 0 left out.

    The denominator belongs to the whole optimiser batch and is never inferred from a micro-batch. It is a
    count, so 0 means that the whole batch is empty: the sum is then 0 and so is the result.
    """
    return (torch.where(weights != 0, terms, 0) * weights).sum() / denominator.clamp(min=1)


def cleared(x: Tensor, mask: Bool[Tensor, "B T"]) -> Tensor:
    """Returns x [B, T, ...] with 0 outside the mask, whatever is there."""
    return torch.where(mask.reshape(*mask.shape, *[1] * (x.ndim - 2)), x, 0)
