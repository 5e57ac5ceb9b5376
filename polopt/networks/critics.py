"""Networks of values: of a state and action, of a state, and of nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from polopt.networks.parts import Network, Space

Activation = Literal["relu", "tanh"]


class EnsembleLinear(nn.Module):
    """H linear layers as one batched product: [H, N, in] to [H, N, out], of weights uniform in 1 / sqrt(in)."""

    def __init__(self, heads: int, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(heads, 1, outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.shape[-1] == 1:  # a product with one column takes a fifth of the time so, on a CPU
            return (x * self.weight.transpose(1, 2)).sum(-1, keepdim=True) + self.bias
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleLayerNorm(nn.Module):
    """A layer norm [H, N, W] with a scale and shift of each of H heads."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(heads, 1, width)), nn.Parameter(torch.zeros(heads, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, nn.functional.layer_norm(x, x.shape[-1:]), self.weight)


class Ensemble(nn.Module):
    """H multilayer perceptrons of the same input: [..., in] to [..., H, out]."""

    def __init__(
        self, heads: int, widths: Sequence[int], activation: Activation, normalise: bool, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.heads = heads
        layers: list[nn.Module] = []
        for inner, outer in itertools.pairwise(widths[:-1]):
            layers.append(EnsembleLinear(heads, inner, outer, generator))
            layers += [EnsembleLayerNorm(heads, outer)] if normalise else []
            layers.append(nn.Tanh() if activation == "tanh" else nn.ReLU())
        self.layers = nn.Sequential(*layers, EnsembleLinear(heads, widths[-2], widths[-1], generator))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(1, -1, x.shape[-1]).expand(self.heads, -1, -1)
        found: Tensor = self.layers(rows)
        return found.transpose(0, 1).unflatten(0, x.shape[:-1])


class _ActionValue(nn.Module):
    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.ensemble = ensemble

    def forward(self, observation: Tensor, *others: Tensor) -> Tensor:
        *inputs, action = others
        observation = torch.cat([observation, *inputs], -1) if inputs else observation
        if action.is_floating_point():
            return self.ensemble(torch.cat([observation, action], -1))[..., 0]
        values: Tensor = self.ensemble(observation)
        return values.gather(-1, action[..., None, None].expand(*values.shape[:-1], 1))[..., 0]


class _StateValue(nn.Module):
    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.ensemble = ensemble

    def forward(self, observation: Tensor) -> Tensor:
        return self.ensemble(observation)[..., 0, 0]


class QNetwork(Network):
    """Values of a state and an action by `heads` perceptrons, Q [..., H]. A policy that chooses has an output for each
    choice, of which the chosen one is returned.

    heads: H, independent networks of the same shape, computed at once.
    hidden: widths of their hidden layers.
    activation: between the layers.
    layer_norm: whether each hidden layer is normalised before its activation.
    policy_inputs: inputs of the policy, by name, that are read beside the observation; and `privileged`, what the
        environment tells beside it and the policy does not read.
    """

    heads: int = 2
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"
    layer_norm: bool = False
    policy_inputs: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("observation", *(f"extras.{name}" for name in self.policy_inputs), "action")

    def setup(self) -> None:
        _check(self, self.hidden, self.heads)

    def check(self, space: Space) -> None:
        space.width_of(self.policy_inputs)

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        inputs, outputs = space.observations + space.width_of(self.policy_inputs), space.actions or 1
        inputs += space.dimensions or 0
        widths = (inputs, *self.hidden, outputs)
        return _ActionValue(Ensemble(self.heads, widths, self.activation, self.layer_norm, generator))


class ValueNetwork(Network):
    """The value of a state by a perceptron, V [...].

    hidden: widths of its hidden layers.
    activation: between the layers.
    layer_norm: as in `QNetwork`.
    """

    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"
    layer_norm: bool = False

    def setup(self) -> None:
        _check(self, self.hidden)

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        widths = (space.observations, *self.hidden, 1)
        return _StateValue(Ensemble(1, widths, self.activation, self.layer_norm, generator))


class _Positive(nn.Module):
    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))

    def forward(self, observation: Tensor) -> Tensor:
        return self.log.exp().expand(observation.shape[:-1])


class Temperature(Network):
    """A positive number, the same at each decision: the exponential of what learns.

    initial: its value at the beginning.
    """

    initial: float = 1.0

    def setup(self) -> None:
        if not self.initial > 0:
            raise ValueError(f"networks.Temperature: initial must be > 0, found {self.initial}")

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        return _Positive(self.initial)


def _check(network: Network, hidden: Sequence[int], heads: int = 1) -> None:
    if heads < 1 or not hidden or min(hidden) < 1:
        raise ValueError(
            f"networks.{type(network).__name__}: heads and widths must be >= 1, with a hidden layer or more, found "
            f"{heads} and {list(hidden)}"
        )
