"""Bilevel descent: inner steps, a hypergradient, and a step of the outer variable."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems import BilevelProblem
from polopt.solvers.implicit import implicit_gradient
from polopt.solvers.linear import ConjugateGradient, LinearSolver, Product
from polopt.solvers.solver import Solver, State

Draws = Iterator[int]


class InnerSteps(Part):
    """`steps(problem, x, y, iteration, draws) -> y`: gradient steps y <- y - lr g_y(x, y), each with its own sample.

    steps: the number of steps in an iteration that takes any. lr: their size.
    period: inner steps are taken in iterations 0, period, 2 period, ...; between them y stays.
    refinement: further steps before the first iteration.
    """

    steps: int = 10
    lr: float = 0.05
    period: int = 1
    refinement: int = 0

    def setup(self) -> None:
        if self.steps < 1 or self.lr <= 0 or self.period < 1 or self.refinement < 0:
            raise ValueError(
                "solvers.InnerSteps: need steps >= 1, lr > 0, period >= 1 and refinement >= 0, found "
                f"{self.steps}, {self.lr}, {self.period} and {self.refinement}"
            )

    def forward(self, problem: BilevelProblem, x: Tensor, y: Tensor, iteration: int, draws: Draws) -> Tensor:
        count = (self.refinement if iteration == 0 else 0) + (self.steps if iteration % self.period == 0 else 0)
        for _ in range(count):
            y = y.detach().requires_grad_()
            (slope,) = torch.autograd.grad(problem.inner(x, y, next(draws)), y)
            y = (y - self.lr * slope).detach()
        return y


class Hypergradient(Part):
    """`hypergradient(problem, x, y, z, draws) -> (gradient [N], z [M])`: d f(x, y*(x)) / dx, where y is near y*(x).

    z is a memory between iterations, for those that solve the linear system g_yy z = f_y step by step.
    """

    def forward(self, problem: BilevelProblem, x: Tensor, y: Tensor, z: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @staticmethod
    def partial(problem: BilevelProblem, x: Tensor, y: Tensor, draw: int) -> tuple[Tensor, Tensor]:
        """Computes f_x [N] and f_y [M], of one sample."""
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        found = torch.autograd.grad(problem.outer(x, y, draw), (x, y), allow_unused=True, materialize_grads=True)
        return found[0], found[1]

    @staticmethod
    def inner_descent(problem: BilevelProblem, x: Tensor, y: Tensor, draw: int) -> Tensor:
        """Computes -g_y(x, y) [M] of one sample, differentiable in both."""
        return -torch.autograd.grad(problem.inner(x, y, draw), y, create_graph=True)[0]


class DirectGradient(Hypergradient):
    """f_x alone: the response of y*(x) to x is left out."""

    def forward(self, problem: BilevelProblem, x: Tensor, y: Tensor, z: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        return self.partial(problem, x, y, next(draws))[0], z


class ImplicitHypergradient(Hypergradient):
    """f_x - g_xy w with (g_yy + damping) w = f_y, solved anew in each iteration.

    solver: solves the linear system from Hessian-vector products, and has the damping.
    """

    solver: LinearSolver = ConjugateGradient()

    def forward(self, problem: BilevelProblem, x: Tensor, y: Tensor, z: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        direct, through = self.partial(problem, x, y, next(draws))
        draw = next(draws)
        response = implicit_gradient(lambda v, u: self.inner_descent(problem, u, v, draw), through, y, x, self.solver)
        return direct + response, z


class TrackedHypergradient(Hypergradient):
    """f_x - g_xy z, with one step z <- z - lr (g_yy z - f_y) an iteration from where z was.

    lr: the step size of z.
    """

    lr: float = 0.01

    def setup(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"solvers.TrackedHypergradient: lr must be positive, found {self.lr}")

    def forward(self, problem: BilevelProblem, x: Tensor, y: Tensor, z: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        direct, through = self.partial(problem, x, y, next(draws))
        draw, tracked = next(draws), [z]

        def step(times: Product, transposed: Product, b: Tensor) -> Tensor:
            tracked.append(z - self.lr * (times(z) - b))
            return tracked[-1]

        response = implicit_gradient(lambda v, u: self.inner_descent(problem, u, v, draw), through, y, x, step)
        return direct + response, tracked[-1].detach()


class MomentumStep(Part):
    """`step(x, momentum, gradient) -> (x, momentum)`: m <- beta m + (1 - beta) gradient, then x <- x - lr m.

    lr: the step size. beta: the persistence of the momentum; 0 is plain descent.
    """

    lr: float = 0.05
    beta: float = 0.9

    def setup(self) -> None:
        if self.lr <= 0 or not 0 <= self.beta < 1:
            raise ValueError(
                f"solvers.{type(self).__name__}: need lr > 0 and 0 <= beta < 1, found {self.lr} and {self.beta}"
            )

    def forward(self, x: Tensor, momentum: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        momentum = self.beta * momentum + (1 - self.beta) * gradient
        return x - self.lr * self.direction(momentum), momentum

    def direction(self, momentum: Tensor) -> Tensor:
        """Returns what the step is taken along, from the momentum."""
        return momentum


class NormalisedMomentumStep(MomentumStep):
    """m <- beta m + (1 - beta) gradient, then x <- x - lr m / (|m| + 1e-10), a step of length lr."""

    lr: float = 0.05
    beta: float = 0.9

    def direction(self, momentum: Tensor) -> Tensor:
        return momentum / (momentum.norm() + 1e-10)


class BilevelDescent(Solver):
    """Descends f(x, y*(x)) of a bilevel problem. In each iteration k = 0, 1, ...:

        y <- inner(x, y),    h, z <- hypergradient(x, y, z),    x, m <- update(x, m, h)

    inner: steps of y.
    hypergradient: the gradient h of the outer objective in x.
    update: the step of x.
    seed: of the numbers of the samples.

    The state holds x, y, z, the momentum m and the number of iterations; the solution is x.
    """

    solves: ClassVar[type] = BilevelProblem

    inner: InnerSteps = InnerSteps()
    hypergradient: Hypergradient = ImplicitHypergradient()
    update: MomentumStep = MomentumStep()
    seed: int = 0

    def start(self, problem: Any) -> dict[str, Tensor]:
        x, y = problem.start()
        iteration = torch.zeros((), dtype=torch.long)
        return {"x": x, "y": y, "z": torch.zeros_like(y), "momentum": torch.zeros_like(x), "iteration": iteration}

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        x, iteration = state["x"], int(state["iteration"])
        # Far from those of other iterations and seeds; a generator reads the lowest 32 bits of a seed alone.
        draws = itertools.count((self.seed * 0x9E3779B1 + iteration) * 0x85EBCA6B % 2**32)
        y = self.inner(problem, x, state["y"], iteration, draws)
        gradient, z = self.hypergradient(problem, x, y, state["z"], draws)
        x, momentum = self.update(x, state["momentum"], gradient)
        return {"x": x, "y": y, "z": z, "momentum": momentum, "iteration": torch.tensor(iteration + 1)}

    def solution(self, problem: Any, state: State) -> Tensor:
        return state["x"]
