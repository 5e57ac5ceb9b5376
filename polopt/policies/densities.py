"""Log-densities, normalisers and samples of the distributions of heads."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor


def normal_logp(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    scaled = (x - mean) / log_std.exp()
    return (-0.5 * scaled.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


def normal_divergence(old: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> Tensor:
    (mean, log_std), (other, other_log_std) = old, new
    spread = (2 * (log_std - other_log_std)).exp() + ((mean - other) / other_log_std.exp()).square()
    return (other_log_std - log_std + (spread - 1) / 2).sum(-1)


def log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()


def log_shares(alpha: Tensor) -> Tensor:
    """Returns the logarithm of a Dirichlet distribution's normaliser."""
    return alpha.lgamma().sum(-1) - alpha.sum(-1).lgamma()


class _Dirichlet(torch.autograd.Function):
    """Samples of Dirichlet distributions, with the implicit derivative of torch, which approximates it to some 1e-3."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, generator: Generator) -> Tensor:
        x = torch._sample_dirichlet(concentration.cpu(), generator).to(concentration)
        ctx.save_for_backward(x, concentration)
        return x

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        x, concentration = ctx.saved_tensors
        total = concentration.sum(-1, keepdim=True).expand_as(concentration)
        grad = torch._dirichlet_grad(x, concentration, total)
        return grad * (slope - (x * slope).sum(-1, keepdim=True)), None


def sample_dirichlet(concentration: Tensor, generator: Generator) -> Tensor:
    found: Tensor = _Dirichlet.apply(concentration, generator)
    return found
