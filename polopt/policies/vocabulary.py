"""Hidden states meet the vocabulary: log-probabilities and entropies of decisions, in chunks where it is large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt import ops

# Beyond this many logits, all decisions times the whole vocabulary never exist at once. A GPU has more memory, and
# needs larger products to be busy.
MOST_LOGITS = {"cpu": 2**23}
ELSEWHERE = 2**28


class Scores(NamedTuple):
    """[N] log-probabilities of what was chosen, [N] entropies in nats if asked, and [N] of each reduction asked for."""

    logp: Tensor
    entropy: Tensor | None
    reduced: dict[str, Tensor]


def entropy_slope(logp: Tensor) -> Tensor:
    """[...] sum_a pi_a^2 (log pi_a + H) of log-probabilities [..., V].

    The mean, over choices of the policy, of -dH / dz_a = pi_a (log pi_a + H): how fast entropy falls with the logit of
    a choice.
    """
    return (logp.exp().square() * (logp.clamp(min=ops.NOTHING) + ops.entropy_of(logp)[..., None])).sum(-1)


# What can be said of a whole distribution beside its entropy, asked for as "extras.<name>": functions of
# log-probabilities [..., V], -inf where nothing can be chosen.
REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"entropy_slope": entropy_slope}


def score(
    hidden: Tensor,
    head: Any,
    chosen: Tensor,
    kept: Tensor | None,
    temperature: float | Tensor,
    *,
    entropy: bool,
    reductions: Sequence[str] = (),
) -> Scores:
    """What a policy says of the `chosen` ids [N], from hidden states [N, d].

    head: the output layer, weight [V, d] and bias [V] or None; it takes the hidden states' precision, and
    logits = head(hidden) / temperature are in float32 or wider. temperature: one, or [N]. kept: [N, K] ids to choose
    among, -1 padding; None for all. reductions: names in `REDUCTIONS`.

    Where N x V is large, logits are computed in chunks, and again in the backward pass:
    d logp_i / d z_ij = 1[j = chosen_i] - p_ij and d H_i / d z_ij = -p_ij (log p_ij + H_i).
    """
    weight, bias = head.weight.to(hidden.dtype), None if head.bias is None else head.bias.to(hidden.dtype)
    most = MOST_LOGITS.get(hidden.device.type, ELSEWHERE)
    if len(hidden) * len(weight) <= most:
        logits = ops.heated(ops.wide(F.linear(hidden, weight, bias)), temperature)
        return score_logits(logits, chosen, kept, entropy=entropy, reductions=reductions)
    arguments = (hidden, weight, bias, chosen, kept, temperature, entropy, tuple(reductions), most)
    logp, entropies, *reduced = _Chunked.apply(*arguments)
    return Scores(logp, entropies if entropy else None, dict(zip(reductions, reduced, strict=True)))


def score_logits(
    logits: Tensor, chosen: Tensor, kept: Tensor | None, *, entropy: bool, reductions: Sequence[str] = ()
) -> Scores:
    """As `score`, from logits [N, V] that are at hand."""
    picked = logits.gather(1, chosen[:, None]).squeeze(1)
    among = logits if kept is None else logits.gather(1, kept.clamp(min=0).long()).masked_fill(kept < 0, -torch.inf)
    logp = picked - among.logsumexp(-1)
    if not entropy and not reductions:
        return Scores(logp, None, {})
    law = among.log_softmax(-1)
    return Scores(logp, ops.entropy_of(law) if entropy else None, {name: REDUCTIONS[name](law) for name in reductions})


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        chosen: Tensor,
        kept: Tensor | None,
        temperature: float | Tensor,
        entropy: bool,
        reductions: tuple[str, ...],
        most: int,
    ) -> tuple[Tensor, ...]:
        size = max(16, most // len(weight))
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        new = lambda: hidden.new_zeros(len(hidden), dtype=wide)  # noqa: E731
        logp, total, entropies, reduced = new(), new(), new(), [new() for _ in reductions]
        for i in range(0, len(hidden), size):
            part = slice(i, i + size)
            logits = _logits(hidden[part], weight, bias, kept, part, temperature)
            total[part] = logits.logsumexp(-1)
            logp[part] = logits.gather(1, chosen[part, None]).squeeze(1) - total[part]
            if entropy or reductions:
                logits.sub_(total[part, None])
            if entropy:
                entropies[part] = ops.entropy_of(logits)
            for name, values in zip(reductions, reduced, strict=True):
                values[part] = REDUCTIONS[name](logits)
        ctx.save_for_backward(hidden, weight, bias, chosen, kept, total, entropies)
        ctx.size, ctx.temperature, ctx.reductions = size, temperature, reductions
        ctx.set_materialize_grads(False)  # what was asked for and not differentiated costs nothing
        return logp, entropies, *reduced

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        by_logp, by_entropy, *by_reduced = upstream
        hidden, weight, bias, chosen, kept, total, entropies = ctx.saved_tensors
        by_logp = torch.zeros_like(total) if by_logp is None else by_logp
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=total.dtype) if ctx.needs_input_grad[1] else None
        to_bias = torch.zeros_like(bias, dtype=total.dtype) if bias is not None and ctx.needs_input_grad[2] else None
        for i in range(0, len(hidden), ctx.size):
            part = slice(i, i + ctx.size)
            logp = _logits(hidden[part], weight, bias, kept, part, ctx.temperature).sub_(total[part, None])
            pulls = [
                _pull(REDUCTIONS[name], logp, by[part])
                for name, by in zip(ctx.reductions, by_reduced, strict=True)
                if by is not None
            ]
            slope = logp.exp()
            if by_entropy is not None:
                logp.clamp_(min=ops.NOTHING).add_(entropies[part, None]).mul_(by_entropy[part, None])
                slope.mul_(logp.add_(by_logp[part, None])).neg_()
            else:
                slope.mul_(by_logp[part, None]).neg_()
            for pull in pulls:
                slope += pull
            slope.scatter_add_(1, chosen[part, None], by_logp[part, None]).div_(_of(ctx.temperature, part))
            if to_bias is not None:
                to_bias += slope.sum(0)
            slope = slope.to(hidden.dtype)
            to_hidden[part] = slope @ weight
            if to_weight is not None:
                _add_product(to_weight, slope.t(), hidden[part])
        to_weight = None if to_weight is None else to_weight.to(weight.dtype)
        to_bias = None if to_bias is None else to_bias.to(weight.dtype)
        return to_hidden, to_weight, to_bias, *[None] * 6


def _pull(reduction: Callable[[Tensor], Tensor], logp: Tensor, upstream: Tensor) -> Tensor:
    """[n, V] the slope by the logits of sum_i upstream_i reduction(logp)_i, with logp [n, V] their log-softmax."""
    leaf = logp.clone().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(reduction(leaf), leaf, upstream)
    return slope - logp.exp() * slope.sum(-1, keepdim=True)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, where the total may be wider than the factors."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def _of(temperature: float | Tensor, part: slice) -> float | Tensor:
    """The temperature of one chunk, [n, 1] if each decision has its own."""
    return temperature[part, None] if isinstance(temperature, Tensor) else temperature


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, kept: Tensor | None, part: slice, temperature: float | Tensor
) -> Tensor:
    """[n, V] logits of one chunk, -inf where a choice was not among those kept."""
    logits = ops.wide(F.linear(hidden, weight, bias))
    if isinstance(temperature, Tensor) or temperature != 1:
        logits /= _of(temperature, part)
    if kept is None:
        return logits
    mine = kept[part].long()
    # A column more, for the padding to point at.
    keep = torch.zeros(len(logits), logits.shape[1] + 1, dtype=torch.bool, device=logits.device)
    keep.scatter_(1, torch.where(mine < 0, logits.shape[1], mine), True)
    return logits.masked_fill_(~keep[:, :-1], -torch.inf)
