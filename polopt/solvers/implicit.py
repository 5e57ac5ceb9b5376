"""Implicit gradients: the derivative of an inner optimisation's solution in its parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polopt.solvers.linear import Product

# (A', A, b [N]) -> x [N] with A'x ~ b, such as a `LinearSolver`.
Solve = Callable[[Product, Product, Tensor], Tensor]


def implicit_gradient(
    update: Callable[[Tensor, Tensor], Tensor], gradient: Tensor, theta: Tensor, phi: Tensor, solver: Solve
) -> Tensor:
    """Computes dJ(theta*(phi)) / dphi at a solution theta of the inner optimisation, where update(theta, phi) = 0:

        -gradient' (d update / d theta)^{-1} (d update / d phi),    gradient = dJ / dtheta

    update: [N] from theta [N] and phi [M], differentiable in both, not necessarily a gradient. Inner steps add
    it to theta, so that the solver inverts -d update / d theta, transposed. Products with this matrix are exact, by
    differentiating once more.

    Raises:
        ValueError: theta, gradient and the update are not flat tensors of one size.
    """
    with torch.enable_grad():
        theta, phi = theta.detach().requires_grad_(), phi.detach().requires_grad_()
        found = update(theta, phi)
        if not (theta.ndim == found.ndim == gradient.ndim == 1 and theta.shape == found.shape == gradient.shape):
            raise ValueError(
                "implicit_gradient: theta, gradient and update need one shape [N], found "
                f"{list(theta.shape)}, {list(gradient.shape)} and {list(found.shape)}"
            )
        probe = torch.zeros_like(found, requires_grad=True)
        (pulled,) = torch.autograd.grad(found, theta, probe, create_graph=True)

        def transposed(v: Tensor) -> Tensor:
            """Computes -(d update / d theta)' v."""
            return -torch.autograd.grad(found, theta, v, retain_graph=True)[0]

        def times(v: Tensor) -> Tensor:
            """Computes -(d update / d theta) v, from the derivative of `transposed` in v."""
            return -torch.autograd.grad(pulled, probe, v, retain_graph=True)[0]

        w = solver(transposed, times, gradient.detach())
        (result,) = torch.autograd.grad(found, phi, w)
    return result
