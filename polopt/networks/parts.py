"""The kind of part that builds a network."""

from __future__ import annotations

from collections.abc import Iterable
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
    inputs: what the policy reads beside the observation, by name, with the numbers in each.
    privileged: numbers that the environment tells beside the observation, P, which the policy's value may read.

    Networks read actions scaled from the bounds to [-1, 1].
    """

    observations: int
    actions: int | None = None
    dimensions: int | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    inputs: tuple[tuple[str, int], ...] = ()
    privileged: int = 0

    def width_of(self, columns: Iterable[str]) -> int:
        """Returns the numbers in these inputs, and in `privileged`, together.

        Raises:
            ValueError: the policy has no input of such a name, or the environment tells nothing.
        """
        widths = dict(self.inputs) | ({"privileged": self.privileged} if self.privileged else {})
        for name in columns:
            if name not in widths:
                fix = f"set sampling.policy_input to a part with name = {name}"
                if name == "privileged":
                    fix = "give the environment's observations an entry of that name"
                found = sorted(widths) or "nothing"
                raise ValueError(f"a network reads {name!r:.40} beside the observation, and there is {found}; {fix}")
        return sum(widths[name] for name in columns)


# Inputs of a network at a decision, beside `extras.NAME`.
INPUTS = ("observation", "action", "next_observation")


class Network(Part):
    """`network.build(space, generator)` makes a module, which is called with the inputs, in their order, [..., D] each:
    to [...], or [..., H] of a network of several heads or numbers.

    inputs: `observation`, the state before the decision, or after it where an output at the next state is asked for;
        `action`, the decision, [...] int64 where the policy chooses; `next_observation`, the state after the decision;
        `extras.NAME`, a column [B, T, ...] of the batch.
    """

    inputs: ClassVar[tuple[str, ...]] = ("observation",)

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(name for name in self.inputs if name not in INPUTS)

    def check(self, space: Space) -> None:
        """Raises ValueError where the network does not fit such a policy."""

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        """Makes the module, with random weights from the generator."""
        raise NotImplementedError
