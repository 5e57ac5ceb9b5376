"""Bytes: weights and what learning adds to them, activations, logits, keys and values; and who holds which share."""

from __future__ import annotations

from polopt.plan.shape import Shape

# Bytes of one number of each type.
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


def weights(parameters: float, size: int) -> float:
    """b P."""
    return size * parameters


def adam(parameters: float, size: int) -> float:
    """2 b P: the two moments of each parameter that learns, in the parameter's own type, as PyTorch keeps them.

    Kept in float32 beside 16-bit weights the sum of weights, gradients and optimiser is the 16 P of mixed precision
    (Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054); with all in one type of b bytes it is 4 b P.
    """
    return 2 * size * parameters


def adapter(shape: Shape, rank: int) -> int:
    """Parameters of low-rank adapters on all products of the layers: r (in + out) each (Hu et al. 2021, arXiv
    2106.09685). With experts, of every expert."""
    d, q, k, f = shape.width, shape.queries, shape.keys, shape.inner
    attention = (d + q) + 2 * (d + k) + (q + d)
    mlp = (2 if shape.gated else 1) * (d + f) + (f + d)
    return rank * shape.layers * (attention + shape.experts * mlp)


def kv_cache(shape: Shape, tokens: float, size: float) -> float:
    """2 b L K D bytes for each token that is kept (Pope et al. 2022, arXiv 2211.05102)."""
    return 2 * size * shape.layers * shape.keys * tokens


def kept_by_layer(shape: Shape, tokens: float, keys: float, shared: float = 0) -> float:
    """Numbers that one layer keeps for its backward pass, with fused attention, which keeps no scores.

        n (norms + 3 H D + H + mlp) + 2 K D (keys read) + 2 H D (keys read behind a shared prompt)

    n tokens. keys: those read by segments of their own. shared: those read behind a prompt that its group shares, which
    are repeated for all heads. A normalisation keeps its input, its output and what it divided by: RMS 3 d + 1, layer
    normalisation 2 d + 2. Attention keeps queries, its output, the output's copy in the order of tokens, and one number
    a head. An MLP keeps 4 f with a gate (both inputs, the activated one and the product), else 2 f; of k experts that a
    token meets each keeps that, and the token twice.

    For GPT-2 it is 17 d + H + 4, as Korthikanti et al. 2022 (arXiv 2205.05198) count without dropout's masks; their
    5 a s / h is what attention that is not fused would add.
    """
    d = shape.width
    norms = 2 * (2 * d + 2 if shape.norm_bias else 3 * d + 1)
    if shape.head_norm:  # on each head: queries and keys inside the product that values come from too, and divided
        norms += 2 * shape.queries + 3 * shape.keys + shape.heads + shape.kv_heads
    mlp = shape.active * (4 if shape.gated else 2) * shape.inner
    if shape.experts > 1:
        mlp += 2 * shape.active * d + 3 * shape.experts
    each = norms + 3 * shape.queries + shape.heads + mlp
    return tokens * each + 2 * shape.keys * keys + 2 * shape.queries * shared


def activations(
    shape: Shape, tokens: float, keys: float, shared: float, size: float, *, checkpointing: bool = False
) -> float:
    """Bytes of what all layers keep: L times `kept_by_layer`; with checkpointing L inputs n d and one layer's rest."""
    layer = kept_by_layer(shape, tokens, keys, shared)
    return size * (shape.layers * tokens * shape.width + layer if checkpointing else shape.layers * layer)


def logits(decided: float, vocabulary: int, most: float) -> float:
    """12 bytes for each logit that exists at once: itself, its exponential and its gradient, in float32. `most` of
    them at a time."""
    return 12 * min(decided * vocabulary, most)


def sharded(whole: float, shards: int) -> float:
    """What one of so many devices holds of it (ZeRO stage 3, arXiv 1910.02054)."""
    return whole / shards


def gathered(shape: Shape, size: float) -> float:
    """Of a sharded model, what is whole while it is used: two layers, the one in use and the next, and the larger of
    the tables (PyTorch FSDP, arXiv 2304.11277)."""
    return size * (2 * shape.layer + shape.head)
