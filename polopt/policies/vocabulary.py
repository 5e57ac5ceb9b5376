"""Log-probabilities of decisions from hidden states, and reductions over all choices, in chunks where the vocabulary is
large."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.policies import products

# Beyond this many logits, those of all decisions never exist at once. A GPU has more memory, and needs larger products
# for full utilisation.
MOST_LOGITS = {"cpu": 2**23}
ELSEWHERE = 2**28
# Up to this many logits, a CPU stores those of all chunks for the backward pass, which saves another product.
MOST_KEPT = {"cpu": 2**26}
# The most numbers of a product that are added to a sum of another precision at once.
MOST_SUMMED = {"cpu": 2**20}


def entropy_slope(logp: Tensor) -> Tensor:
    """Returns sum_a pi_a^2 (log pi_a + H), [...], of log-probabilities [..., V].

    The mean, over choices of the policy, of -dH / dz_a = pi_a (log pi_a + H): the rate at which entropy falls with the
    logit of a choice.
    """
    return (logp.exp().square() * (logp.clamp(min=ops.NOTHING) + ops.entropy_of(logp)[..., None])).sum(-1)


# Reductions of the log-probabilities [..., V] of all choices of a decision, -inf for ids outside the support, to [...].
# A part reads them as `extras.<name>`. They are differentiable; a choice at -inf must get a slope of 0.
REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "entropy_slope": entropy_slope,
    "mean_logp": ops.mean_logp,
}


def score(
    hidden: Tensor,
    head: Any,
    chosen: Tensor,
    kept: Tensor | None,
    temperature: float | Tensor,
    names: Collection[str] = (),
    candidates: Tensor | None = None,
) -> dict[str, Tensor]:
    """Computes outputs for N decisions from their hidden states [N, d].

    The outputs are "logp" [N] of the `chosen` ids [N], and of `names` "entropy" [N] in nats and any of `REDUCTIONS`,
    [N]. With `candidates` [N, C], -1 padding, "candidate_logp" [N, C] of those ids; padding, and ids outside the
    support, are at `ops.NOTHING`.

    head: the output layer, weight [V, d] and bias [V] or None; it is converted to the hidden states' precision, and
        logits = head(hidden) / temperature are in float32 or wider.
    temperature: one number, or [N].
    kept: [N, K] ids of the support, -1 padding; None for all.

    Where N x V is large, logits are computed in chunks, and, beyond `MOST_KEPT`, again in the backward pass: d logp_i /
    d z_ij = 1[j = chosen_i] - p_ij, d H_i / d z_ij = -p_ij (log p_ij + H_i), and, for a reduction of slope g_ij by log
    p_ij, g_ij - p_ij sum_j g_ij.
    """
    weight, bias = head.weight, head.bias
    most = MOST_LOGITS.get(hidden.device.type, ELSEWHERE)
    if len(hidden) * len(weight) <= most:
        weight, bias = weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
        logits = ops.heated(ops.wide(products.linear(hidden, weight, bias)), temperature)
        return score_logits(logits, chosen, kept, names, candidates)
    names = tuple(sorted(names))
    picks = chosen[:, None] if candidates is None else torch.cat([chosen[:, None], candidates.clamp(min=0).long()], 1)
    keep = torch.is_grad_enabled() and len(hidden) * len(weight) <= MOST_KEPT.get(hidden.device.type, 0)
    logp, *values = _Chunked.apply(hidden, weight, bias, picks, kept, temperature, names, most, keep)
    found = {"logp": logp[:, 0], **dict(zip(names, values, strict=True))}
    return found if candidates is None else {**found, "candidate_logp": _possible(logp[:, 1:], candidates)}


def score_logits(
    logits: Tensor,
    chosen: Tensor,
    kept: Tensor | None,
    names: Collection[str] = (),
    candidates: Tensor | None = None,
) -> dict[str, Tensor]:
    """Computes the outputs of `score` from given logits [N, V]."""
    picked = logits.gather(1, chosen[:, None]).squeeze(1)
    among = logits if kept is None else logits.gather(1, kept.clamp(min=0).long()).masked_fill(kept < 0, -torch.inf)
    total = among.logsumexp(-1)
    found = {"logp": picked - total}
    if names:
        everything = among.log_softmax(-1)
        found |= {name: _of_all(name, everything) for name in names}
    if candidates is not None:
        left = logits if kept is None else logits.masked_fill(~_is_kept(kept, logits.shape[1]), -torch.inf)
        logp = left.gather(1, candidates.clamp(min=0).long()) - total[:, None]
        found["candidate_logp"] = _possible(logp, candidates)
    return found


@torch.no_grad()
def likeliest(hidden: Tensor, head: Any, kept: Tensor | None, count: int) -> Tensor:
    """Returns the C = min(count, V) likeliest ids at each decision, [N, C], likeliest first; -1 where fewer are in the
    support."""
    weight, bias = head.weight.to(hidden.dtype), None if head.bias is None else head.bias.to(hidden.dtype)
    size = max(16, MOST_LOGITS.get(hidden.device.type, ELSEWHERE) // len(weight))
    found = [torch.zeros(0, min(count, len(weight)), dtype=torch.int32, device=hidden.device)]
    for i in range(0, len(hidden), size):
        part = slice(i, i + size)
        logits = ops.wide(products.linear(hidden[part], weight, bias))
        found.append(likeliest_of(logits, None if kept is None else kept[part], count))
    return torch.cat(found)


def likeliest_of(logits: Tensor, kept: Tensor | None, count: int) -> Tensor:
    """Returns the ids of `likeliest` from given logits [N, V]."""
    size = logits.shape[1]
    left = logits if kept is None else logits.masked_fill(~_is_kept(kept, size), -torch.inf)
    top = left.detach().topk(min(count, size), dim=-1)
    return top.indices.masked_fill(top.values == -torch.inf, -1).int()


def _of_all(name: str, logp: Tensor) -> Tensor:
    return ops.entropy_of(logp) if name == "entropy" else REDUCTIONS[name](logp)


def _possible(logp: Tensor, candidates: Tensor) -> Tensor:
    """Returns candidates' log-probabilities, NOTHING without gradient for padding and ids outside the support."""
    return torch.where((candidates >= 0) & (logp > ops.NOTHING), logp, ops.NOTHING)


class _Chunked(torch.autograd.Function):
    """Log-probabilities [N, P] of the `picks` [N, P], and the reductions `names` of all choices, [N] each, chunked."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        picks: Tensor,
        kept: Tensor | None,
        temperature: float | Tensor,
        names: tuple[str, ...],
        most: int,
        keep: bool,
    ) -> tuple[Tensor, ...]:
        size = max(16, most // len(weight))
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        logp, total = hidden.new_zeros(picks.shape, dtype=wide), hidden.new_zeros(len(hidden), dtype=wide)
        values = {name: torch.zeros_like(total) for name in names}
        ctx.everything = []
        ctx.to_weight, ctx.to_bias = (None if it is None else it.dtype for it in (weight, bias))
        weight, bias = weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
        for i in range(0, len(hidden), size):
            part = slice(i, i + size)
            logits = _logits(hidden[part], weight, bias, kept, part, temperature)
            total[part] = logits.logsumexp(-1)
            logp[part] = logits.gather(1, picks[part]) - total[part, None]
            everything = logits.sub_(total[part, None]) if names or keep else logits
            for name, value in values.items():
                value[part] = _of_all(name, everything)
            if keep:
                ctx.everything.append(everything)
        entropies = values.get("entropy")
        ctx.save_for_backward(hidden, weight, bias, picks, kept, total, entropies)
        ctx.size, ctx.temperature, ctx.names = size, temperature, names
        return logp, *values.values()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        by_logp, *by_value = upstream
        by_name = dict(zip(ctx.names, by_value, strict=True))
        hidden, weight, bias, picks, kept, total, entropies = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden)
        to_weight = torch.zeros_like(weight, dtype=total.dtype) if ctx.needs_input_grad[1] else None
        to_bias = torch.zeros_like(bias, dtype=total.dtype) if ctx.needs_input_grad[2] else None
        by_all, by_entropy = by_logp.sum(1), by_name.pop("entropy", None)
        # The stored logits are overwritten below, so a second pass over the same graph recomputes them.
        everything, ctx.everything = ctx.everything[::-1], []
        for i in range(0, len(hidden), ctx.size):
            part = slice(i, i + ctx.size)
            if everything:
                logp = everything.pop()
            else:
                logp = _logits(hidden[part], weight, bias, kept, part, ctx.temperature).sub_(total[part, None])
            slope = logp.exp() if by_name or by_entropy is not None else logp.exp_()
            extra = _slope_of_reductions(logp, slope, {name: by[part] for name, by in by_name.items()})
            if by_entropy is not None:
                logp.clamp_(min=ops.NOTHING).add_(entropies[part, None]).mul_(by_entropy[part, None])
                slope.mul_(logp.add_(by_all[part, None]).neg_())
            else:
                slope.mul_(-by_all[part, None])
            if extra is not None:
                slope += extra
            slope.scatter_add_(1, picks[part], by_logp[part])
            if isinstance(ctx.temperature, Tensor) or ctx.temperature != 1:
                slope /= _of(ctx.temperature, part)
            if to_bias is not None:
                to_bias += slope.sum(0)
            slope = slope.to(hidden.dtype)
            to_hidden[part] = products.linear(slope, weight.t())
            if to_weight is not None:
                _add_product(to_weight, slope.t(), hidden[part])
        return (
            to_hidden,
            None if to_weight is None else to_weight.to(ctx.to_weight),
            None if to_bias is None else to_bias.to(ctx.to_bias),
            None,
            None,
            None,
            None,
            None,
            None,
        )


def _slope_of_reductions(logp: Tensor, p: Tensor, upstream: dict[str, Tensor]) -> Tensor | None:
    """Returns the gradient [n, V] of the reductions with respect to the logits, times the upstream gradients; None if
    there are none."""
    if not upstream:
        return None
    with torch.enable_grad():
        leaf = logp.detach().requires_grad_()
        values = [REDUCTIONS[name](leaf) for name in upstream]
    (slope,) = torch.autograd.grad(values, leaf, list(upstream.values()))
    return slope - p * slope.sum(-1, keepdim=True)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Adds a @ b to total in place, where the total may be wider than the factors."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
        return
    # Some rows at a time: a sum of two precisions temporarily holds the product in both, and the system would allocate
    # memory of that size anew, page by page, each time.
    rows = max(1, MOST_SUMMED.get(a.device.type, ELSEWHERE) // b.shape[1])
    for i in range(0, len(a), rows):
        total[i : i + rows] += a[i : i + rows] @ b


def _of(temperature: float | Tensor, part: slice) -> float | Tensor:
    """Returns the temperature of one chunk, [n, 1] if each decision has its own."""
    return temperature[part, None] if isinstance(temperature, Tensor) else temperature


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, kept: Tensor | None, part: slice, temperature: float | Tensor
) -> Tensor:
    """Returns logits [n, V] of one chunk, -inf for ids outside the support."""
    logits = ops.wide(products.linear(hidden, weight, bias))
    if isinstance(temperature, Tensor) or temperature != 1:
        logits /= _of(temperature, part)
    if kept is None:
        return logits
    return logits.masked_fill_(~_is_kept(kept[part], logits.shape[1]), -torch.inf)


def _is_kept(kept: Tensor, size: int) -> Tensor:
    """Converts ids [N, K], -1 padding, to a mask [N, V] bool."""
    # One more column, as the target of padding.
    keep = torch.zeros(len(kept), size + 1, dtype=torch.bool, device=kept.device)
    keep.scatter_(1, torch.where(kept < 0, size, kept).long(), True)
    return keep[:, :-1]
