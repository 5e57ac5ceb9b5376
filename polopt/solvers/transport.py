"""Couplings of two sets of points: entropic transport, and Gromov-Wasserstein couplings of their distances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt.part import Part


def sinkhorn(logits: Tensor, iterations: int = 50) -> Tensor:
    """Returns the logarithm of the coupling [..., N, M] proportional to u exp(logits) v with uniform marginals.

    Columns sum to 1 / M to rounding, rows to 1 / N in the limit of many iterations. Source: Cuturi, arXiv:1306.0895.
    """
    N, M = logits.shape[-2:]
    for _ in range(iterations):
        logits = logits - logits.logsumexp(-1, keepdim=True) - math.log(N)
        logits = logits - logits.logsumexp(-2, keepdim=True) - math.log(M)
    return logits


def gromov_wasserstein_gradient(source: Tensor, target: Tensor, coupling: Tensor) -> Tensor:
    """Returns sum_kl |source_ik - target_jl|^2 T_kl, [..., N, M], for a coupling T [..., N, M] with uniform
    marginals; half the gradient of the cost."""
    one, other = source.square().mean(1), target.square().mean(1)
    return one[:, None] + other - 2 * source @ coupling @ target


def gromov_wasserstein_cost(source: Tensor, target: Tensor, coupling: Tensor) -> Tensor:
    """Returns sum_ijkl |source_ik - target_jl|^2 T_ij T_kl, [...], of a coupling T with uniform marginals.

    source: [N, N] distances, symmetric. target: [M, M]. Source: Mémoli 2011; Peyré et al., ICML 2016.
    """
    return (gromov_wasserstein_gradient(source, target, coupling) * coupling).sum((-1, -2))


class GromovWasserstein(Part):
    """`start(source, target)` and `forward(source, target, log T) -> log T`: couplings [R, N, M] of two sets of points
    by their distances alone, [N, N] and [M, M], from R starts at once. One step is

        log T <- sinkhorn(log T - G(T) / eps),    G_ij = sum_kl |source_ik - target_jl|^2 T_kl

    whose fixed points are stationary for the cost without entropy. Distances are divided by the largest of both sets.

    eps: the step is the longer, the smaller it is.
    starts: of the pairs (i, j), so many whose distances to all others are the most alike; from each the coupling begins
        as the transport of distances to i onto distances to j. All pairs that are as much alike as the last are taken.
    scalings: iterations of `sinkhorn` in each step.
    proximal: False leaves log T out of the step, whose fixed points then are stationary for the cost with an entropy.

    The cost is not convex, so that starts matter; these do not depend on the order of points. Two sets are told apart
    up to isometries: a mirror image is the same.
    """

    eps: float = 0.02
    starts: int = 32
    scalings: int = 50
    proximal: bool = True

    def setup(self) -> None:
        if self.eps <= 0 or self.starts < 1 or self.scalings < 1:
            raise ValueError(
                "solvers.GromovWasserstein: need eps > 0, starts >= 1 and scalings >= 1, found "
                f"{self.eps}, {self.starts} and {self.scalings}"
            )

    @staticmethod
    def scaled(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Returns both sets of distances, divided by the largest of them."""
        largest = torch.maximum(source.max(), target.max()).clamp(min=torch.finfo(source.dtype).tiny)
        return source / largest, target / largest

    def start(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns the logarithms of the couplings before the first step, [R, N, M]."""
        source, target = self.scaled(source, target)
        grid = torch.linspace(0, 1, max(len(source), len(target)), dtype=source.dtype)
        profiles = torch.quantile(source, grid, dim=1).T, torch.quantile(target, grid, dim=1).T
        apart = (profiles[0][:, None] - profiles[1]).square().mean(-1)
        last = apart.flatten().sort().values[min(self.starts, apart.numel()) - 1]
        i, j = (apart <= last * (1 + 1e-9) + 1e-12).nonzero().T
        return sinkhorn(-(source[i][:, :, None] - target[j][:, None]).square() / self.eps, self.scalings)

    def forward(self, source: Tensor, target: Tensor, log_coupling: Tensor) -> Tensor:
        source, target = self.scaled(source, target)
        logits = -gromov_wasserstein_gradient(source, target, log_coupling.exp()) / self.eps
        return sinkhorn(log_coupling + logits if self.proximal else logits, self.scalings)

    def cost(self, source: Tensor, target: Tensor, log_coupling: Tensor) -> Tensor:
        """Returns the cost of each coupling [R], in squares of the largest distance."""
        return gromov_wasserstein_cost(*self.scaled(source, target), log_coupling.exp())


class IndependentCoupling(GromovWasserstein):
    """Couples every point with every other alike and never moves: no alignment."""

    def start(self, source: Tensor, target: Tensor) -> Tensor:
        return source.new_full((1, len(source), len(target)), -math.log(len(source) * len(target)))

    def forward(self, source: Tensor, target: Tensor, log_coupling: Tensor) -> Tensor:
        return log_coupling
