"""The sum of a frozen network and of one that corrects it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class ResidualNetwork(nn.Module):
    """f(x) = base(x) + residual(x), of which the residual alone learns.

    The residual begins as a copy of the base whose last layer is 0, so that f is the base at first.
    Source: COMPASS, arXiv:2502.16372.

    base: layers, of which the last is linear.
    """

    def __init__(self, base: nn.Sequential) -> None:
        super().__init__()
        self.residual = copy.deepcopy(base)
        last = self.residual[-1]
        assert isinstance(last, nn.Linear)
        for parameter in last.parameters():
            nn.init.zeros_(parameter)
        self.base = base.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            fixed = self.base(x)
        corrected: Tensor = fixed + self.residual(x)
        return corrected
