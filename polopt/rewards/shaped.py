"""Concave reward transforms, and the intersection over union of intervals."""

from __future__ import annotations

import torch
from torch import Tensor


def interval_iou(found: Tensor, true: Tensor) -> Tensor:
    """Intersection over union of intervals [..., 2], each (start, end): 1 for the same one, 0 for disjoint ones.

    An interval that ends before it starts is empty, and so is an empty intersection: 0. Two points are the same
    interval if they are the same point.
    """
    start, end = torch.maximum(found[..., 0], true[..., 0]), torch.minimum(found[..., 1], true[..., 1])
    shared = (end - start).clamp(min=0)
    union = (found[..., 1] - found[..., 0]).clamp(min=0) + (true[..., 1] - true[..., 0]).clamp(min=0) - shared
    same = (found == true).all(-1).to(shared.dtype)
    return torch.where(union > 0, shared / torch.where(union > 0, union, 1), same)
