"""Learning signal in a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops


def mixed_groups(outcome: Tensor, group: Tensor) -> Tensor:
    """Share of the groups whose outcomes [B] are not all equal, each counted once; NaN without rows.

    Credit relative to the group's mean is 0 in all others. A group of one is never mixed.
    """
    first, size = ops.group_first(group), ops.group_index(group)[1]
    if not len(size):
        return torch.tensor(torch.nan)
    least, most = ops.group_least(outcome, group), -ops.group_least(-outcome, group)
    return (most > least)[first].double().mean()
