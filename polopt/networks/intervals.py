"""Actors whose actions lie in an interval that depends on the state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from polopt.errors import RunError
from polopt.networks.parts import Space
from polopt.networks.perceptron import Activation, perceptron
from polopt.networks.programs import Program
from polopt.networks.trunks import Trunk


class IntervalActor(nn.Module):
    """An actor of the state and of the interval in which its action must lie.

    network: of the observation and the scaled interval, [..., D + 2 A], to the outputs.
    programs: whose actions the interval is around. low, high: the bounds of an action, [A]. spread, margin: as in
    `ProgramInterval`.
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        network: nn.Module,
        programs: Sequence[Program],
        low: Sequence[float],
        high: Sequence[float],
        *,
        spread: float,
        margin: float,
    ) -> None:
        super().__init__()
        self.network, self.programs, self.spread, self.margin = network, nn.ModuleList(programs), spread, margin
        self.register_buffer("low", torch.tensor([*low]), persistent=False)
        self.register_buffer("high", torch.tensor([*high]), persistent=False)

    def forward(self, seen: Tensor) -> Tensor:
        """Returns the outputs and the ends of the interval, [..., 3 A], for observations [..., D] and, behind them,
        whether the interval is that of the programs, [..., 1], else the bounds."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        interval = self.interval(seen)
        found: Tensor = self.network(torch.cat([seen[..., :-1], ((interval - middle) / half).flatten(-2)], -1))
        return torch.cat([found, interval.flatten(-2)], -1)

    def interval(self, seen: Tensor) -> Tensor:
        """Returns the least and the largest action, [..., 2, A], in the environment's units.

        Raises:
            RunError: a program's action is no number.
        """
        observation, masked = seen[..., :-1], seen[..., -1:, None] > 0
        with torch.no_grad():
            actions = torch.stack([program(observation) for program in self.programs])
            if not torch.compiler.is_compiling() and not actions.isfinite().all():
                raise RunError("a program's action is not a finite number; see `programs` of the method")
            actions = actions.clamp(self.low, self.high)
            mean, std = actions.mean(0), actions.std(0, correction=0)
            reach = self.spread * std + self.margin * (self.high - self.low) / 2
            near = torch.stack([mean - reach, mean + reach], -2).clamp(self.low, self.high)
            bounds = torch.stack([self.low, self.high]).expand_as(near)
            return torch.where(masked, near, bounds)


class ProgramInterval(Trunk):
    """A policy whose action lies in an interval around those of K programs c_k, where the policy's input says so:

        [l, u] = mean_k c_k(s) -+ (spread std_k c_k(s) + margin (high - low) / 2)

    within the bounds low and high, each number of an action for itself; else l = low and u = high. The actor reads s, l
    and u. Its head must be deterministic, whose action is then l + (u - l) (tanh(x) + 1) / 2 for an output x.

    programs: one or more.
    input: name of the policy's input, 1 where the interval holds; a `sampling.BernoulliInput`.
    spread: standard deviations of the programs on either side. margin: half widths of the bounds.
    hidden: widths of the perceptrons. activation: between their layers.

    Source: Zhao et al. 2025, arXiv 2502.11896, whose formula of the interval is unknown to us; this one is ours.
    """

    programs: tuple[Program, ...] = ()
    input: str = "masked"
    spread: float = 1.0
    margin: float = 0.25
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"

    normalised = False

    def setup(self) -> None:
        if self.spread < 0 or self.margin < 0:
            raise ValueError(
                f"networks.ProgramInterval: need spread >= 0 and margin >= 0, found {self.spread} and {self.margin}"
            )

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        if dict(space.inputs) != {self.input: 1}:
            raise ValueError(
                f"networks.ProgramInterval: an input of one number, {self.input!r}, tells whether the interval holds, "
                f"and the policy's inputs are {dict(space.inputs) or 'none'}; set sampling.policy_input to "
                f"sampling.BernoulliInput with name = {self.input}"
            )
        if space.low is None or space.high is None:
            raise ValueError(
                "networks.ProgramInterval: an interval needs actions of a Box with finite bounds, and a head that acts "
                "within one; set policy.head to deterministic"
            )
        if not self.programs:
            raise ValueError(
                "programs is empty: name one or more policies that are written down, as {part: networks.LinearProgram, "
                "gains: [[0, 100]]}, a row of gains for each number of an action, or {part: 'my_programs.py:Name'}"
            )
        for program in self.programs:
            self._check(program, space)
        network = perceptron(
            [space.observations + 2 * len(space.low), *self.hidden, outputs], self.activation, 0.01, generator
        )
        return IntervalActor(network, self.programs, space.low, space.high, spread=self.spread, margin=self.margin)

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        return perceptron([space.observations + 1, *self.hidden, 1], self.activation, 1.0, generator)

    def _check(self, program: Program, space: Space) -> None:
        """Refuses a program that gives no actions of the space."""
        with torch.no_grad():
            found = program(torch.zeros(2, space.observations))
        if not isinstance(found, Tensor) or found.shape != (2, space.dimensions) or not found.isfinite().all():
            shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"programs: {type(program).__name__} must return finite actions [N, {space.dimensions}] for "
                f"observations [N, {space.observations}], found {shape} for two of zeros"
            )
