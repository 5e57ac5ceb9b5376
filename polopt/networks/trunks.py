"""Trunks: the networks between what a policy reads and the numbers that its head takes."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from polopt.networks.parts import Space
from polopt.part import Part


class Trunk(Part):
    """`trunk.build(space, outputs, generator)` makes the policy's network, of what it reads [..., D] to [..., outputs],
    and `trunk.build_value(space, generator)` that of its own value, to [..., 1].

    normalised: whether it may read normalised observations.
    """

    normalised: ClassVar[bool] = True

    def build(self, space: Space, outputs: int, generator: torch.Generator) -> nn.Module:
        """Makes the module. outputs: numbers that the head takes.

        Raises:
            ValueError: the trunk does not fit the space.
        """
        raise NotImplementedError

    def build_value(self, space: Space, generator: torch.Generator) -> nn.Module:
        """Makes the module of the value of a state."""
        raise NotImplementedError
