"""Penalties for right answers with wrong steps, and the reward of a process judge."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def step_verdict(found: Int[Tensor, "B"], first: Int[Tensor, "B"], steps: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Returns the reward of a process judge that names the first wrong step, with n = `steps` steps, counted from 0:
        1 for finding none where there is none;   1 - |found - first| / n for naming one where there is one;
        -1 for anything else.

    found: the judge's verdict, -1 for none; any other number outside 0 .. n - 1 stands for an unreadable verdict.
    first: the true first wrong step, -1 for none.

    Source: FAPO's GenRM, arXiv:2510.22543.
    """
    named, wrong = (found >= 0) & (found < steps), first >= 0
    near = 1 - (found - first).abs() / steps.clamp(min=1)
    agreed = torch.where(wrong, near, 1.0)
    return torch.where(torch.where(wrong, named, found == -1), agreed, -1.0)
