"""Dynamic movement primitives as the last layer of a policy: trajectories of a damped spring with a learned force."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from polopt.networks.parts import Space
from polopt.networks.perceptron import Activation, perceptron
from polopt.networks.trunks import Trunk


class MovementPrimitive(Trunk):
    """A perceptron that sets, for each coordinate of a movement, a goal g and weights w, and the movement from the
    present state (y_0, dy_0) that they determine, of Euler's steps dt on

        dx = -a_x x,  dz = a_z (a_z / 4 (g - y) - z) + f,  dy = z
        f = x (g - y_0) sum_n w_n psi_n(x) / sum_n psi_n(x),  psi_n(x) = exp(-h_n (x - c_n)^2)

    with x = 1 at first, c_n = exp(-a_x n / (N - 1)) for n = 0 .. N - 1 and h_n = N^1.5 / (a_x c_n). Its outputs are
    `actions` of its points, evenly apart and the last one among them, coordinate by coordinate: [actions C]. The
    policy's value is a perceptron of its own.

    With w = 0 it is a critically damped spring, and the movement ends at g whatever w is, since x falls to 0. Positions
    and velocities are linear in y_0, dy_0, g and w (g - y_0), so the steps are taken once, and a matrix kept.

    position: places of the C coordinates y_0 in the observation. velocity: those of dy_0; none is a start at rest.
    actions: points of the movement that are the outputs. output: whether they are positions y, their differences, of
    the first one from y_0, or velocities dy. basis: N. steps: of Euler, a multiple of `actions`. time: of the movement,
    steps dt, in units of the time scale tau, as the derivatives. stiffness: a_z. decay: a_x. scale: w is the
    perceptron's output times it. hidden, activation: of the perceptron.
    """

    normalised: ClassVar[bool] = False

    position: tuple[int, ...] = (0,)
    velocity: tuple[int, ...] = ()
    actions: int = 5
    output: Literal["position", "displacement", "velocity"] = "displacement"
    basis: int = 3
    steps: int = 35
    time: float = 1.0
    stiffness: float = 25.0
    decay: float = 1.0
    scale: float = 100.0
    hidden: tuple[int, ...] = (64, 64)
    activation: Activation = "tanh"

    def setup(self) -> None:
        if self.actions < 1 or self.steps < self.actions or self.steps % self.actions or self.basis < 1:
            raise ValueError(
                f"networks.MovementPrimitive: steps must be a multiple of actions, and basis >= 1, found steps = "
                f"{self.steps}, actions = {self.actions} and basis = {self.basis}"
            )
        if not self.position or (self.velocity and len(self.velocity) != len(self.position)):
            raise ValueError(
                "networks.MovementPrimitive: needs a position or more, and none or as many velocities, found "
                f"{len(self.position)} and {len(self.velocity)}"
            )
        if min(self.time, self.stiffness, self.decay) <= 0 or self.stiffness * self.time > 2 * self.steps:
            raise ValueError(
                "networks.MovementPrimitive: time, stiffness and decay must be > 0, and stiffness x time <= 2 steps, "
                f"beyond which Euler's steps diverge, found {self.time:g}, {self.stiffness:g} and {self.decay:g}, and "
                f"{self.steps} steps"
            )

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        if max(*self.position, *self.velocity, 0) >= space.observations:
            raise ValueError(
                f"networks.MovementPrimitive: position and velocity must be places among the {space.observations} "
                f"numbers of an observation, found {[*self.position]} and {[*self.velocity]}"
            )
        points = self.actions * len(self.position)
        if space.dimensions != points or points < 2:
            raise ValueError(
                f"networks.MovementPrimitive: {self.actions} actions of {len(self.position)} coordinates are vectors "
                f"of {points} numbers, found {space.dimensions or f'{space.actions} choices'}; set environment.chunk "
                "to the number of actions, >= 2, and position to as many places as an action has numbers"
            )
        if outputs != points:
            raise ValueError(
                f"networks.MovementPrimitive: its outputs are the mean of a decision, {points} numbers, and the "
                f"policy's head takes {outputs}; set policy.head to gaussian"
            )
        widths = [*self._widths(space), len(self.position) * (1 + self.basis)]
        return _Movement(self, perceptron(widths, self.activation, 0.01, generator))

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        return perceptron([*self._widths(space), 1], self.activation, 1.0, generator)

    def _widths(self, space: Space) -> list[int]:
        return [space.observations + sum(width for _, width in space.inputs), *self.hidden]

    def phases(self) -> Tensor:
        """Returns x psi_n(x) / sum_n psi_n(x) before each step, [steps, N] in float64."""
        n = torch.arange(self.basis, dtype=torch.float64) / max(1, self.basis - 1)
        centre = (-self.decay * n).exp()
        width = self.basis**1.5 / centre / self.decay
        # The force of a step is that of the phase after it.
        x = (1 - self.decay * self.time / self.steps) ** torch.arange(1, self.steps + 1, dtype=torch.float64)[:, None]
        psi = (-width * (x - centre) ** 2).exp()
        return x * psi / psi.sum(1, keepdim=True)

    def responses(self) -> Tensor:
        """Returns what an output is for y_0, dy_0, g and w_n (g - y_0) = 1 each, the others 0: [actions, 3 + N]."""
        unit, dt = torch.eye(3 + self.basis, dtype=torch.float64), self.time / self.steps
        y, z, goal, force = unit[0], unit[1], unit[2], unit[3:]
        positions, velocities = [y], [z]
        for phase in self.phases():
            spring = self.stiffness * (self.stiffness / 4 * (goal - y) - z) + phase @ force
            y, z = y + dt * z, z + dt * spring
            positions.append(y)
            velocities.append(z)
        points = torch.stack(velocities if self.output == "velocity" else positions)[:: self.steps // self.actions]
        return points.diff(dim=0) if self.output == "displacement" else points[1:]


class _Movement(nn.Module):
    """The points of movements."""

    responses: Tensor

    def __init__(self, spec: MovementPrimitive, net: nn.Sequential) -> None:
        super().__init__()
        self.spec, self.net = spec, net
        self.register_buffer("responses", spec.responses().float(), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Returns the points [..., actions C] of movements from observations [..., D]."""
        spec = self.spec
        raw = self.net(observation).unflatten(-1, (len(spec.position), 1 + spec.basis))
        begin = observation[..., list(spec.position)]
        speed = observation[..., list(spec.velocity)] if spec.velocity else torch.zeros_like(begin)
        goal = raw[..., 0]
        forces = spec.scale * raw[..., 1:] * (goal - begin)[..., None]
        causes = torch.cat([torch.stack([begin, speed, goal], -1), forces], -1)  # [..., C, 3 + N]
        points: Tensor = causes @ self.responses.T.to(causes)  # [..., C, actions]
        return points.transpose(-1, -2).flatten(-2)
