"""Matrix-free solvers of (A + damping) x = b, where A is a function that multiplies."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polopt.part import Part

Product = Callable[[Tensor], Tensor]


class LinearSolver(Part):
    """`solver(times, transposed, b [N]) -> [N]`, an x with (A + damping I) x ~ b; times: A v, transposed: A'v.

    damping: added to every eigenvalue, so that a nearly singular A does not amplify directions of little influence.
    """

    damping: float = 0.0

    def forward(self, times: Product, transposed: Product, b: Tensor) -> Tensor:
        raise NotImplementedError


class ConjugateGradient(LinearSolver):
    """Conjugate gradients, at most `iterations` steps, until the residual is `tolerance` times the initial one.

    symmetric: A + damping is symmetric and positive definite. False solves the normal equations instead, which works
    for any invertible A, takes two products a step and squares the condition number.
    """

    damping: float = 0.0
    iterations: int = 100
    tolerance: float = 1e-10
    symmetric: bool = True

    def setup(self) -> None:
        if self.iterations < 1 or self.tolerance < 0 or self.damping < 0:
            raise ValueError(
                "solvers.ConjugateGradient: need iterations >= 1, tolerance >= 0 and damping >= 0, found "
                f"{self.iterations}, {self.tolerance} and {self.damping}"
            )

    def forward(self, times: Product, transposed: Product, b: Tensor) -> Tensor:
        def damped(product: Product, v: Tensor) -> Tensor:
            return product(v) + self.damping * v

        if self.symmetric:
            return self._solve(lambda v: damped(times, v), b)
        return self._solve(lambda v: damped(transposed, damped(times, v)), damped(transposed, b))

    def _solve(self, product: Product, b: Tensor) -> Tensor:
        x, residual = torch.zeros_like(b), b.clone()
        direction, square = residual, residual @ residual
        enough = self.tolerance**2 * square
        for _ in range(self.iterations):
            if square <= enough:
                break
            moved = product(direction)
            curvature = direction @ moved
            if curvature <= 0:  # not a descent direction: the current x is better than the next
                break
            step = square / curvature
            x, residual = x + step * direction, residual - step * moved
            before, square = square, residual @ residual
            direction = residual + square / before * direction
        return x


class Neumann(LinearSolver):
    """rate sum_{k < terms} (I - rate (A + damping I))^k b: steps of x <- x + rate (b - (A + damping I) x) from 0.

    The series converges where every eigenvalue of A + damping lies within 1 / rate of 1 / rate. Fewer terms truncate
    it earlier.
    """

    damping: float = 0.0
    rate: float = 0.1
    terms: int = 100

    def setup(self) -> None:
        if self.rate <= 0 or self.terms < 1 or self.damping < 0:
            raise ValueError(
                "solvers.Neumann: need rate > 0, terms >= 1 and damping >= 0, found "
                f"{self.rate}, {self.terms} and {self.damping}"
            )

    def forward(self, times: Product, transposed: Product, b: Tensor) -> Tensor:
        x = torch.zeros_like(b)
        for _ in range(self.terms):
            x = x + self.rate * (b - times(x) - self.damping * x)
        return x
