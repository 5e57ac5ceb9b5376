"""The trainable parameters as one tensor of bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def flat(policy: nn.Module) -> Tensor:
    """[bytes] uint8, a copy on the CPU: the trainable parameters, in their order. The frozen ones are the same in every
    process, as the recipe makes them."""
    found = [p.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for p in _learning(policy)]
    return torch.cat(found)


@torch.no_grad()
def load_flat(policy: nn.Module, data: Tensor) -> None:
    """Copies the bytes of `flat` into a policy's trainable parameters.

    Raises:
        ValueError: their number does not fit the policy.
    """
    parameters = list(_learning(policy))
    sizes = [p.numel() * p.element_size() for p in parameters]
    if sum(sizes) != len(data):
        raise ValueError(f"weights of {len(data)} bytes do not fit a policy of {sum(sizes)}")
    for parameter, piece in zip(parameters, data.split(sizes), strict=True):
        # A copy is aligned as its type needs.
        parameter.copy_(piece.clone().view(parameter.dtype).view(parameter.shape))


def _learning(policy: nn.Module) -> list[nn.Parameter]:
    return [p for p in policy.parameters() if p.requires_grad]
