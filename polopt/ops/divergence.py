"""Divergences between distributions from their log-probabilities."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]
# exp(20) is 5e8: far beyond any trust region, and far from overflow.
LIMIT = 20.0


def kl_estimate(kind: KLEstimator, logp: Float[Tensor, "B T"], ref_logp: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Per-decision estimate of KL(policy || reference) from the policy's own samples, d = ref_logp - logp.

    k1 = -d: unbiased, any sign. k2 = d^2 / 2: biased, small variance. k3 = exp(d) - 1 - d: unbiased, >= 0.
    As a loss on the policy's own samples, k1's gradient averages to zero, k2's to the gradient of
    KL(policy || reference), k3's to that of KL(reference || policy). Beyond d = 20, k3 continues along its
    tangent: finite in float32, with a gradient that still points to the reference.

    Source: J. Schulman, Approximating KL divergence, 2020.
    """
    d = ref_logp - logp
    if kind == "k1":
        return -d
    if kind == "k2":
        return d.square() / 2
    near = d.clamp(max=LIMIT)
    return torch.expm1(near) + near.exp() * (d - near) - d


def jensen_shannon(logp: Float[Tensor, "*N K"], logq: Float[Tensor, "*N K"], alpha: float) -> Float[Tensor, "*N"]:
    """Generalised Jensen-Shannon divergence of two distributions from log-probabilities, with m = (1 - alpha) p + alpha
    q:

        alpha KL(q || m) + (1 - alpha) KL(p || m);    alpha 0 is KL(q || p), alpha 1 is KL(p || q).

    At alpha 0 and 1 the divergence would be 0; the KL of the limit's direction is returned. `NOTHING` is log 0.
    Source: generalised knowledge distillation, arXiv:2306.13649.
    """
    kl = lambda a, b: (a.exp() * (a - b)).sum(-1)  # noqa: E731
    if alpha in (0, 1):
        return kl(logq, logp) if alpha == 0 else kl(logp, logq)
    mixture = torch.logaddexp(logp + math.log1p(-alpha), logq + math.log(alpha))
    return alpha * kl(logq, mixture) + (1 - alpha) * kl(logp, mixture)
