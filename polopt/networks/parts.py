"""The kind of part that builds a network."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import nn

from polopt.part import Part


class Space(NamedTuple):
    """The numbers that a policy reads and decides on.

    observations: numbers in an observation, D.
    actions: choices, of a policy that chooses; None for one whose actions are vectors.
    dimensions: numbers in an action, A; None for a policy that chooses.
    low, high: the bounds of an action, [A]; None where a policy has none.

    Networks read actions scaled from the bounds to [-1, 1].
    """

    observations: int
    actions: int | None = None
    dimensions: int | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


class Network(Part):
    """`network.build(space, generator)` makes a module, `module(observation)` or, where `reads_action`,
    `module(observation, action)`: [..., D] and [..., A], or [...] int64, to [..., H] or [...]."""

    reads_action: ClassVar[bool] = False

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        """Makes the module, with random weights from the generator."""
        raise NotImplementedError
