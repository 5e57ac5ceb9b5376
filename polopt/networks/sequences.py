"""Actors that give several actions in turn after one look at the state."""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator, Tensor, nn

from polopt.networks.parts import Space
from polopt.networks.perceptron import Activation, perceptron, seeded
from polopt.networks.trunks import Trunk


class SequenceActor(nn.Module):
    """An actor that has outputs for several decisions in turn, from what is seen before the first of them."""

    def unroll(self, seen: Tensor, act: Callable[[Tensor], Tensor], length: int) -> None:
        """Calls `act` for so many decisions in turn with the outputs [..., outputs] of each, and goes on from the
        action [..., A] that it returns. seen: [..., D], what the policy reads before the first one."""
        raise NotImplementedError


class ActionSequence(Trunk):
    """A recurrent actor of open-loop sequences of actions. With a_(-1) the action before, an input of the policy,

        h_0 = f(s),  h_(j+1) = GRU(a_(j-1), h_j),  outputs of action j = W h_(j+1) + b

    where s is seen before the first action alone, and f is a perceptron without an activation at its end. A single
    decision is the first of a sequence. The policy's value is a perceptron of its own.

    input: name of the policy's input that holds the action before.
    hidden: widths of f, of which the last is that of h.
    activation: between the layers of f.

    Source: Patel and Siegelmann 2024, arXiv 2410.08979, and the authors' program.
    """

    input: str = "last_action"
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"

    def setup(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"networks.ActionSequence: hidden needs widths >= 1, found {[*self.hidden]}")

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        if space.dimensions is None or space.inputs != ((self.input, space.dimensions),):
            raise ValueError(
                f"networks.ActionSequence: it reads the action before, a vector of {space.dimensions or 'no'} numbers, "
                f"and the policy's inputs are {dict(space.inputs) or 'none'}; set sampling.policy_input to "
                f"sampling.LastAction with name = {self.input}, in an environment whose actions are a Box"
            )
        begin = perceptron([space.observations, *self.hidden], self.activation, 1.0, generator)
        with seeded(generator):
            cell = nn.GRUCell(space.dimensions, self.hidden[-1])
        out = perceptron([self.hidden[-1], outputs], self.activation, 0.01, generator)
        return _Recurrent(begin, cell, out, space.dimensions)

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        read = space.observations + space.width_of([self.input])
        return perceptron([read, *self.hidden, 1], self.activation, 1.0, generator)


class _Recurrent(SequenceActor):
    def __init__(self, begin: nn.Module, cell: nn.GRUCell, out: nn.Module, dimensions: int) -> None:
        super().__init__()
        self.begin, self.cell, self.out, self.dimensions = begin, cell, out, dimensions

    def forward(self, seen: Tensor) -> Tensor:
        """Returns the outputs [..., outputs] of the first action."""
        state, last = self._begin(seen)
        found: Tensor = self.out(self.cell(last, state))
        return found.view(*seen.shape[:-1], -1)

    def unroll(self, seen: Tensor, act: Callable[[Tensor], Tensor], length: int) -> None:
        state, last = self._begin(seen)
        for _ in range(length):
            state = self.cell(last, state)
            last = act(self.out(state).view(*seen.shape[:-1], -1)).reshape(-1, self.dimensions)

    def _begin(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        rows = seen.reshape(-1, seen.shape[-1])
        observation, last = rows[:, : -self.dimensions], rows[:, -self.dimensions :]
        return self.begin(observation), last
