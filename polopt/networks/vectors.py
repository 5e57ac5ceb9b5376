"""Networks whose output is a vector: encoders, representations, models of what comes next."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polopt.networks.critics import Activation, Ensemble
from polopt.networks.parts import INPUTS, Network, Space


class _Vector(nn.Module):
    def __init__(self, ensemble: Ensemble, several: bool, length: float | None, limit: float | None) -> None:
        super().__init__()
        self.ensemble, self.several, self.length, self.limit = ensemble, several, length, limit

    def forward(self, *inputs: Tensor) -> Tensor:
        found = self.ensemble(torch.cat(inputs, -1))
        found = found if self.several else found[..., 0, :]
        found = found if self.limit is None else self.limit * found.tanh()
        return found if self.length is None else self.length * nn.functional.normalize(found, dim=-1)


class VectorNetwork(Network):
    """A vector of so many numbers by a perceptron of its inputs joined, [..., D]; [..., H, D] of several heads.

    outputs: D; None is the numbers in an observation.
    reads_from: its inputs, as in `Network.inputs`, where `extras.NAME` is an input of the policy.
    heads: H independent networks; None is one, without a dimension of its own.
    hidden, activation, layer_norm: as in `QNetwork`.
    normalised: whether it is scaled to length sqrt(D).
    limit: c, for numbers c tanh(x) within c of 0; None is no limit.
    """

    outputs: int | None = None
    reads_from: tuple[str, ...] = ("observation",)
    heads: int | None = None
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"
    layer_norm: bool = False
    normalised: bool = False
    limit: float | None = None

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.reads_from

    def setup(self) -> None:
        sizes = (1 if self.outputs is None else self.outputs, self.heads or 1, *self.hidden)
        if min(sizes) < 1 or self.heads == 0 or not self.hidden or not self.reads_from:
            raise ValueError(
                "networks.VectorNetwork: outputs, heads and widths must be >= 1, with an input and a hidden layer or "
                f"more, found {self.outputs}, {self.heads}, {list(self.hidden)} and {list(self.reads_from)}"
            )
        if self.limit is not None and not self.limit > 0:
            raise ValueError(f"networks.VectorNetwork: limit must be > 0, found {self.limit}")
        unknown = [name for name in self.reads_from if name not in INPUTS and not name.startswith("extras.")]
        if unknown:
            raise ValueError(
                f"networks.VectorNetwork: reads_from must be among {', '.join(INPUTS)} and extras.NAME, found {unknown}"
            )

    def build(self, space: Space, generator: torch.Generator) -> nn.Module:
        outputs = space.observations if self.outputs is None else self.outputs
        others = [name.removeprefix("extras.") for name in self.reads_from if name not in INPUTS]
        numbers = {"action": space.dimensions or 0}
        inputs = sum(numbers.get(name, space.observations) for name in self.reads_from if name in INPUTS)
        widths = (inputs + space.width_of(others), *self.hidden, outputs)
        ensemble = Ensemble(self.heads or 1, widths, self.activation, self.layer_norm, generator)
        length = outputs**0.5 if self.normalised else None
        return _Vector(ensemble, self.heads is not None, length, self.limit)
