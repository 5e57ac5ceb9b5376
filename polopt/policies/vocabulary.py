"""Hidden states meet the vocabulary: log-probabilities and entropies of decisions, in chunks where it is large."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt import ops

# Beyond this many logits, all decisions times the whole vocabulary never exist at once. A GPU has more memory, and
# needs larger products to be busy.
MOST_LOGITS = {"cpu": 2**23}
ELSEWHERE = 2**28


def score(
    hidden: Tensor, head: Any, chosen: Tensor, kept: Tensor | None, temperature: float, *, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """[N] log-probabilities of the `chosen` ids [N], and [N] entropies in nats if asked, from hidden states [N, d].

    head: the output layer, weight [V, d] and bias [V] or None; it takes the hidden states' precision, and
    logits = head(hidden) / temperature are in float32 or wider. kept: [N, K] ids to choose among, -1 padding; None
    for all.

    Where N x V is large, logits are computed in chunks, and again in the backward pass:
    d logp_i / d z_ij = 1[j = chosen_i] - p_ij and d H_i / d z_ij = -p_ij (log p_ij + H_i).
    """
    weight, bias = head.weight.to(hidden.dtype), None if head.bias is None else head.bias.to(hidden.dtype)
    most = MOST_LOGITS.get(hidden.device.type, ELSEWHERE)
    if len(hidden) * len(weight) <= most:
        logits = ops.wide(F.linear(hidden, weight, bias))
        return score_logits(logits if temperature == 1 else logits / temperature, chosen, kept, entropy=entropy)
    logp, entropies = _Chunked.apply(hidden, weight, bias, chosen, kept, temperature, entropy, most)
    return logp, entropies if entropy else None


def score_logits(logits: Tensor, chosen: Tensor, kept: Tensor | None, *, entropy: bool) -> tuple[Tensor, Tensor | None]:
    """As `score`, from logits [N, V] that are at hand."""
    picked = logits.gather(1, chosen[:, None]).squeeze(1)
    among = logits if kept is None else logits.gather(1, kept.clamp(min=0).long()).masked_fill(kept < 0, -torch.inf)
    logp = picked - among.logsumexp(-1)
    return logp, ops.entropy_of(among.log_softmax(-1)) if entropy else None


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        chosen: Tensor,
        kept: Tensor | None,
        temperature: float,
        entropy: bool,
        most: int,
    ) -> tuple[Tensor, Tensor]:
        size = max(16, most // len(weight))
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        logp, total, entropies = (hidden.new_zeros(len(hidden), dtype=wide) for _ in range(3))
        for i in range(0, len(hidden), size):
            part = slice(i, i + size)
            logits = _logits(hidden[part], weight, bias, kept, part, temperature)
            total[part] = logits.logsumexp(-1)
            logp[part] = logits.gather(1, chosen[part, None]).squeeze(1) - total[part]
            if entropy:
                entropies[part] = ops.entropy_of(logits.sub_(total[part, None]))
        ctx.save_for_backward(hidden, weight, bias, chosen, kept, total, entropies)
        ctx.size, ctx.temperature, ctx.entropy = size, temperature, entropy
        return logp, entropies

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        by_logp, by_entropy = upstream
        hidden, weight, bias, chosen, kept, total, entropies = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=total.dtype) if ctx.needs_input_grad[1] else None
        to_bias = torch.zeros_like(bias, dtype=total.dtype) if bias is not None and ctx.needs_input_grad[2] else None
        for i in range(0, len(hidden), ctx.size):
            part = slice(i, i + ctx.size)
            logp = _logits(hidden[part], weight, bias, kept, part, ctx.temperature).sub_(total[part, None])
            slope = logp.exp()
            if ctx.entropy:
                logp.clamp_(min=ops.NOTHING).add_(entropies[part, None]).mul_(by_entropy[part, None])
                slope.mul_(logp.add_(by_logp[part, None])).neg_()
            else:
                slope.mul_(by_logp[part, None]).neg_()
            slope.scatter_add_(1, chosen[part, None], by_logp[part, None]).div_(ctx.temperature)
            if to_bias is not None:
                to_bias += slope.sum(0)
            slope = slope.to(hidden.dtype)
            to_hidden[part] = slope @ weight
            if to_weight is not None:
                _add_product(to_weight, slope.t(), hidden[part])
        return (
            to_hidden,
            None if to_weight is None else to_weight.to(weight.dtype),
            None if to_bias is None else to_bias.to(weight.dtype),
            None,
            None,
            None,
            None,
            None,
        )


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, where the total may be wider than the factors."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, kept: Tensor | None, part: slice, temperature: float
) -> Tensor:
    """[n, V] logits of one chunk, -inf where a choice was not among those kept."""
    logits = ops.wide(F.linear(hidden, weight, bias))
    if temperature != 1:
        logits /= temperature
    if kept is None:
        return logits
    mine = kept[part].long()
    # A column more, for the padding to point at.
    keep = torch.zeros(len(logits), logits.shape[1] + 1, dtype=torch.bool, device=logits.device)
    keep.scatter_(1, torch.where(mine < 0, logits.shape[1], mine), True)
    return logits.masked_fill_(~keep[:, :-1], -torch.inf)
