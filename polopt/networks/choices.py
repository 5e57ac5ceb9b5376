"""Networks that give a number to each choice of a policy that chooses."""

from __future__ import annotations

import torch
from torch import nn

from polopt.networks.critics import Activation, Ensemble
from polopt.networks.parts import Network, Space


class ChoiceNetwork(Network):
    """H numbers for each of n choices after a state, [..., H, n], by `heads` perceptrons: values, or logits.

    heads, hidden, activation, layer_norm: as in `QNetwork`.
    """

    heads: int = 1
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"
    layer_norm: bool = False

    def setup(self) -> None:
        if self.heads < 1 or not self.hidden or min(self.hidden) < 1:
            raise ValueError(
                "networks.ChoiceNetwork: heads and widths must be >= 1, with a hidden layer or more, found "
                f"{self.heads} and {list(self.hidden)}"
            )

    def check(self, space: Space) -> None:
        if space.actions is None:
            raise ValueError(
                "networks.ChoiceNetwork has a number for each choice, and the policy's actions are vectors"
            )

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        self.check(space)
        widths = (space.observations, *self.hidden, space.actions or 0)
        return Ensemble(self.heads, widths, self.activation, self.layer_norm, generator)
