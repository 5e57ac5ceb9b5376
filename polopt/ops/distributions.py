"""Distributions over choices: temperature and truncation of logits, functions of log-probabilities."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# exp(-1e4) is 0 in every precision.
NOTHING = -1e4


def kept_choices(logits: Float[Tensor, "*N V"], top_k: int, top_p: float) -> Bool[Tensor, "*N V"]:
    """Which choices top-k, then top-p, keep. Ties at the k-th place are all kept; at least one choice is."""
    keep = torch.ones_like(logits, dtype=torch.bool)
    if 0 < top_k < logits.shape[-1]:
        keep = logits >= logits.topk(top_k, dim=-1).values[..., -1:]
    if top_p < 1:
        p, order = logits.masked_fill(~keep, -torch.inf).softmax(-1).sort(-1, descending=True)
        # A choice stays if the mass before it has not reached top_p yet.
        stays = p.cumsum(-1) - p < top_p
        keep = keep & torch.zeros_like(keep).scatter(-1, order, stays)
    return keep


def wide(logits: Tensor) -> Tensor:
    """In float32, or float64 if they are: log-probabilities in half precision are too coarse for a ratio."""
    return logits if logits.dtype == torch.float64 else logits.float()


def entropy_of(logp: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """-sum p log p in nats from normalised log-probabilities, with 0 log 0 = 0."""
    # Where exp is exactly 0, and far from numbers that a gradient's factor would carry to infinity, and 0 * inf to NaN.
    return -(logp.exp() * logp.clamp(min=NOTHING)).sum(-1)


def heated(logits: Float[Tensor, "*N V"], temperature: float | Float[Tensor, "*N"]) -> Float[Tensor, "*N V"]:
    """Logits over one temperature for all, or over one for each distribution; they keep their precision."""
    if isinstance(temperature, Tensor):
        return logits / temperature[..., None].to(logits.dtype)
    return logits if temperature == 1 else logits / temperature


def mean_logp(logp: Float[Tensor, "*N V"]) -> Float[Tensor, "*N"]:
    """Mean of log p over the choices that there are, from normalised log-probabilities, -inf where there is none."""
    real = logp > -torch.inf
    return torch.where(real, logp, 0).sum(-1) / real.sum(-1)


def log1mexp(x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """log(1 - exp(x)) for x <= 0: what a probability leaves to the others. 0 is taken one rounding lower."""
    x = x.clamp(max=-torch.finfo(x.dtype).eps)
    return torch.where(x > -0.6931, (-torch.expm1(x)).log(), torch.log1p(-x.exp()))
