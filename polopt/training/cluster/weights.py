"""The parameters that learn, as one piece of memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def flat(policy: nn.Module) -> Tensor:
    """[bytes] uint8, a copy on the CPU: the parameters that may learn, in their order. The others are as the recipe
    makes them, everywhere."""
    found = [p.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for p in _learning(policy)]
    return torch.cat(found)


@torch.no_grad()
def load_flat(policy: nn.Module, data: Tensor) -> None:
    """Inverse of `flat`.

    Raises:
        ValueError: it is of another policy.
    """
    parameters = list(_learning(policy))
    sizes = [p.numel() * p.element_size() for p in parameters]
    if sum(sizes) != len(data):
        raise ValueError(f"weights of {len(data)} bytes do not fit a policy of {sum(sizes)}")
    for parameter, piece in zip(parameters, data.split(sizes), strict=True):
        # A copy begins where its type needs it to.
        parameter.copy_(piece.clone().view(parameter.dtype).view(parameter.shape))


def _learning(policy: nn.Module) -> list[nn.Parameter]:
    return [p for p in policy.parameters() if p.requires_grad]
