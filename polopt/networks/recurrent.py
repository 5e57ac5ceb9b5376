"""Networks with a memory of the episode so far."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from polopt.networks.parts import Space
from polopt.networks.perceptron import Activation, perceptron, seeded
from polopt.networks.trunks import Trunk


class MemoryNetwork(nn.Module):
    """A network f(s, m) of the observation and of a memory of what came before it, m <- GRU((s, a), m).

    network: f. cell: of the memory, one layer. observations: numbers in s. place: of m among the numbers behind s.
    """

    def __init__(self, network: nn.Module, cell: nn.GRU, observations: int, place: slice) -> None:
        super().__init__()
        self.network, self.cell, self.observations, self.place = network, cell, observations, place

    def forward(self, seen: Tensor) -> Tensor:
        """Returns f [..., outputs] of [..., D + 2 units and more]: s, the memories, and what is behind them."""
        behind = seen[..., self.observations :]
        rest = behind[..., 2 * self.cell.hidden_size :]
        found: Tensor = self.network(torch.cat([seen[..., : self.observations], behind[..., self.place], rest], -1))
        return found

    def remember(self, memories: Tensor, met: Tensor) -> Tensor:
        """Returns the network's memory [N, T, units] after each of T decisions in turn. memories: before the first one,
        [N, 2 units]. met: observations and actions, [N, T, D + A]."""
        found: Tensor = self.cell(met, memories[None, :, self.place].contiguous())[0]
        return found


class Recurrent(Trunk):
    """A policy pi(a | s, m) and a value V(s, m'), each with a memory of its own of the episode's observations and
    actions before, m <- GRU((s, a), m), which is 0 at first. What the environment tells as `privileged` the value reads
    behind them.

    Gradients go back through the decisions of a fragment, to its first one, whose memory is that which was acted by.
    So minibatches are of whole fragments, and methods must be of `sampling.Fragments`.

    input: name of the policy's input that holds the memories, a `sampling.Memory`, which has their units.
    hidden: widths of the perceptrons behind. activation: between their layers.

    Source: Hausknecht and Stone 2015, arXiv 1507.06527, for values; Cho et al. 2014, arXiv 1406.1078, for the cell.
    """

    input: str = "memory"
    hidden: tuple[int, ...] = (64,)
    activation: Activation = "tanh"

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        return self._built(space, outputs, 0, generator)

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        return self._built(space, 1, 1, generator)

    def _built(self, space: Space, outputs: int, number: int, generator: Generator) -> nn.Module:
        """Makes the policy's network, number 0, or the value's, 1."""
        names = tuple(name for name, _ in space.inputs)
        if names != (self.input,) or space.width_of(names) % 2:
            raise ValueError(
                f"networks.Recurrent: it reads two memories of as many units, and the policy's inputs are "
                f"{dict(space.inputs) or 'none'}; set sampling.policy_input to sampling.Memory with name = {self.input}"
            )
        D, units = space.observations, space.width_of(names) // 2
        read = D + units + (0, space.privileged)[number]
        network = perceptron([read, *self.hidden, outputs], self.activation, (0.01, 1.0)[number], generator)
        with seeded(generator):
            cell = nn.GRU(D + (space.dimensions or space.actions or 0), units, batch_first=True)
        return MemoryNetwork(network, cell, D, slice(number * units, (number + 1) * units))
