"""Distributions over choices: temperature and truncation of logits, functions of log-probabilities."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# exp(-1e4) is 0 in every precision.
NOTHING = -1e4


def kept_choices(logits: Float[Tensor, "*N V"], top_k: int, top_p: float) -> Bool[Tensor, "*N V"]:
    """Returns a mask of the choices that top-k, then top-p, keep. Ties at the k-th place are all kept; at least one
    choice is.
    """
    keep = torch.ones_like(logits, dtype=torch.bool)
    if 0 < top_k < logits.shape[-1]:
        keep = logits >= logits.topk(top_k, dim=-1).values[..., -1:]
    if top_p < 1:
        p, order = logits.masked_fill(~keep, -torch.inf).softmax(-1).sort(-1, descending=True)
        # A choice is kept if the probability mass before it has not reached top_p.
        stays = p.cumsum(-1) - p < top_p
        keep = keep & torch.zeros_like(keep).scatter(-1, order, stays)
    return keep


def wide(logits: Tensor) -> Tensor:
    """Casts logits to float32 unless they are float64: half-precision log-probabilities are too coarse for a ratio."""
    return logits if logits.dtype == torch.float64 else logits.float()


def entropy_of(logp: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """-sum p log p in nats from normalised log-probabilities, with 0 log 0 = 0."""
    # The bound has exp exactly 0, and is small enough that no factor of the gradient overflows: 0 * inf would be NaN.
    return -(logp.exp() * logp.clamp(min=NOTHING)).sum(-1)


def heated(logits: Float[Tensor, "*N V"], temperature: float | Float[Tensor, "*N"]) -> Float[Tensor, "*N V"]:
    """Divides logits by one temperature for all, or by one for each distribution; the precision is unchanged."""
    if isinstance(temperature, Tensor):
        return logits / temperature[..., None].to(logits.dtype)
    return logits if temperature == 1 else logits / temperature


def mean_logp(logp: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """Mean of log p over the available choices, from normalised log-probabilities, -inf for unavailable ones."""
    real = logp > -torch.inf
    return torch.where(real, logp, 0).sum(-1) / real.sum(-1)


def with_rest(logp: Float[Tensor, "*N K"]) -> Float[Tensor, "*N K1"]:
    """Appends to log-probabilities of some choices that of all others together."""
    return torch.cat([logp, log1mexp(logp.logsumexp(-1, keepdim=True))], -1)


def log1mexp(x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """log(1 - exp(x)) for x <= 0: the log-probability of the complement. x = 0 is replaced by -eps of its dtype."""
    x = x.clamp(max=-torch.finfo(x.dtype).eps)
    return torch.where(x > -0.6931, (-torch.expm1(x)).log(), torch.log1p(-x.exp()))
