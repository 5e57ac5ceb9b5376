"""Actors with a policy for every balance between improvement and imitation, and a model that chooses one by state."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from polopt.networks.parts import Space
from polopt.networks.perceptron import Activation, perceptron
from polopt.networks.trunks import Trunk

# The column of a minibatch's balances, [B, T, 1], without `extras.`.
BALANCE = "balance"


class BalanceActor(nn.Module):
    """The outputs of a decision at the balance beta that a model of the state gives, or at another one.

    family: of the state and the embedding of beta, [..., D + d], to the outputs.
    chooser: of the state to the mean of u, where beta = low + (high - low) (tanh(u) + 1) / 2.
    log_std: the logarithm of the standard deviation of u, [1], which no state changes.
    """

    # The columns of a batch that it reads, behind the observation, where they are there.
    optional = (BALANCE,)

    scales: Tensor

    def __init__(self, family: nn.Module, chooser: nn.Module, low: float, high: float, base: float, width: int) -> None:
        super().__init__()
        self.family, self.chooser, self.low, self.high = family, chooser, low, high
        self.log_std = nn.Parameter(torch.zeros(1))
        self.register_buffer("scales", base ** (-2 * torch.arange(width // 2) / width), persistent=False)
        self.observations = next(chooser.parameters()).shape[-1]

    def forward(self, read: Tensor) -> Tensor:
        """Returns the outputs [..., outputs]. read: [..., D], for the most likely balance, which has no gradient then;
        or [..., D + 1], whose last number is the balance."""
        seen, given = read.tensor_split([self.observations], -1)
        return self.at(seen, given if given.shape[-1] else self.mode(seen).detach())

    def at(self, seen: Tensor, balance: Tensor) -> Tensor:
        """Returns the outputs [..., outputs] at states [..., D] and balances [..., 1]."""
        found: Tensor = self.family(torch.cat([seen, self.embedded(balance)], -1))
        return found

    def frozen_at(self, seen: Tensor, balance: Tensor) -> Tensor:
        """Returns the same outputs, with a gradient in the balance and none in the family's parameters."""
        values = {name: value.detach() for name, value in self.family.named_parameters()}
        read = torch.cat([seen, self.embedded(balance)], -1)
        found: Tensor = torch.func.functional_call(self.family, values, (read,))
        return found

    def embedded(self, balance: Tensor) -> Tensor:
        """Returns e(beta) [..., d] of balances [..., 1]: sines and cosines of beta / n^(2 i / d) by turns."""
        angle = balance * self.scales.to(balance)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)

    def law(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log standard deviation [..., 1] of u at states [..., D]."""
        mean: Tensor = self.chooser(seen)
        return mean, self.log_std.expand_as(mean)

    def mode(self, seen: Tensor) -> Tensor:
        """Returns the balance [..., 1] of the mean of u."""
        return self.low + (self.high - self.low) * (self.law(seen)[0].tanh() + 1) / 2


class BalanceFamily(Trunk):
    """A policy pi_u(a | s, e(beta)) for every balance beta in [low, high], and a model pi_b(beta | s) of balances:

        beta = low + (high - low) (tanh(u) + 1) / 2,    u ~ N(mu(s), sigma^2)
        e(beta) = (sin(beta / n^(2 i / d)), cos(beta / n^(2 i / d))),  i = 0 .. d / 2 - 1

    pi_u acts at the beta of mu(s), unless a batch has the column `balance`. The policy's own value reads the state.

    low, high: bounds of beta.
    width: d. base: n.
    hidden: widths of the perceptrons. activation: between their layers.

    Source: Wang et al. 2023, arXiv 2310.17966, and the authors' program.
    """

    low: float = 1.0
    high: float = 5.0
    width: int = 6
    base: float = 10000.0
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"

    def setup(self) -> None:
        if not 0 <= self.low < self.high:
            raise ValueError(f"networks.BalanceFamily: need 0 <= low < high, found {self.low} and {self.high}")
        if self.width < 2 or self.width % 2 or not self.base > 1:
            raise ValueError(
                f"networks.BalanceFamily: need an even width >= 2 and base > 1, found {self.width} and {self.base}"
            )

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        if space.inputs:
            raise ValueError(
                f"networks.BalanceFamily: it reads observations alone, and the policy's inputs are {dict(space.inputs)}"
                "; leave out sampling.policy_input"
            )
        D = space.observations
        family = perceptron([D + self.width, *self.hidden, outputs], self.activation, 0.01, generator)
        chooser = perceptron([D, *self.hidden, 1], self.activation, 0.01, generator)
        return BalanceActor(family, chooser, self.low, self.high, self.base, self.width)

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        return perceptron([space.observations, *self.hidden, 1], self.activation, 1.0, generator)
