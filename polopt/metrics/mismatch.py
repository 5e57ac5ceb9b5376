"""Log-probability mismatch between learner and sampler, for the same tokens and weights.

Sampler and learner are often different programs (an inference engine and a training step, another
precision, older weights). The gradient is exact only if they agree.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Mismatch(NamedTuple):
    """Scalars of one batch, float64. With no decision in the mask all are NaN.

    mean, max: of |logp_sampler - logp_learner|, nats per decision.
    k1, k3: estimates of KL(sampler || learner), nats per decision. k1 = mean of log s - log l, unbiased,
        may be negative; k3 = mean of r - 1 - log r with r = l/s, never negative, less noisy near zero.
    ess_token, ess_sequence: Kish's effective sample size of the weights w = l/s as a share of the sample,
        in (0, 1]; 1 means that all weights are equal.
    """

    mean: Tensor
    max: Tensor
    k1: Tensor
    k3: Tensor
    ess_token: Tensor
    ess_sequence: Tensor


def logp_mismatch(logp_sampler: Tensor, logp_learner: Tensor, mask: Tensor) -> Mismatch:
    """Compares two log-probabilities [B, T] of the same sampled decisions, where `mask` [B, T] is True.

    ess = (sum w)^2 / (n sum w^2), over decisions with w = exp(log l - log s), and over rows with
    decisions with w = exp of the row's sum. Values off the mask, NaN included, are never read.

    Raises:
        ValueError: shapes that differ.

    Sources: k1 and k3, Schulman 2020, "Approximating KL Divergence"; effective sample size, Kish 1965.
    """
    if not logp_sampler.shape == logp_learner.shape == mask.shape:
        raise ValueError(
            "logp_mismatch: logp_sampler, logp_learner and mask must have one shape [B, T], found "
            f"{list(logp_sampler.shape)}, {list(logp_learner.shape)} and {list(mask.shape)}"
        )
    with torch.no_grad():
        log_ratio = torch.where(mask, logp_learner.double() - logp_sampler.double(), 0.0)
        flat = log_ratio[mask]
        if flat.numel() == 0:
            return Mismatch(*torch.full((6,), torch.nan, dtype=torch.float64).unbind())
        size = flat.abs()
        k3 = (torch.expm1(flat) - flat).mean()
        rows = log_ratio.sum(1)[mask.any(1)]
        return Mismatch(
            size.mean(),
            size.max(),
            -flat.mean(),
            k3,
            effective_sample_size(flat),
            effective_sample_size(rows),
        )


def effective_sample_size(log_weight: Tensor) -> Tensor:
    """Kish's (sum w)^2 / (n sum w^2) from log-weights [n]: a share in (0, 1], safe for weights of any size.

    Scaling all weights changes nothing. NaN for no weights.

    Source: Kish 1965, "Survey Sampling".
    """
    w = log_weight.double()
    if w.numel() == 0:
        return torch.tensor(torch.nan, dtype=torch.float64)
    return torch.exp(2 * torch.logsumexp(w, 0) - torch.logsumexp(2 * w, 0)) / w.numel()
