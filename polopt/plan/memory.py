"""Memory in bytes: weights, gradients and optimiser state, activations, logits, keys and values; and their shards."""

from __future__ import annotations

from polopt.plan.shape import ModelShape
from polopt.policies.products import LARGE

# Bytes of one number of each type.
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


def weights(parameters: float, size: int) -> float:
    """b P."""
    return size * parameters


def adam(parameters: float, size: int) -> float:
    """2 b P: the two moments of each parameter that learns, in the parameter's own type, as PyTorch keeps them.

    Kept in float32 next to 16-bit weights the sum of weights, gradients and optimiser is the 16 P of mixed precision
    (Rajbhandari et al. 2020, ZeRO, arXiv 1910.02054); with all in one type of b bytes it is 4 b P.
    """
    return 2 * size * parameters


def adapter(shape: ModelShape, rank: int) -> int:
    """Parameters of low-rank adapters on all products of the layers: r (in + out) each (Hu et al. 2021, arXiv
    2106.09685). With experts, of every expert."""
    d, q, k, f = shape.width, shape.queries, shape.keys, shape.inner
    attention = (d + q) + 2 * (d + k) + (q + d)
    mlp = (2 if shape.gated else 1) * (d + f) + (f + d)
    return rank * shape.layers * (attention + shape.experts * mlp)


def kv_cache(shape: ModelShape, tokens: float, size: float) -> float:
    """2 b L K D bytes for each token that is kept (Pope et al. 2022, arXiv 2211.05102)."""
    return 2 * size * shape.layers * shape.keys * tokens


def made_by_layer(shape: ModelShape, tokens: float, keys: float, shared: float = 0, *, repeated: bool = False) -> float:
    """Numbers that one layer computes and its backward pass needs, with fused attention, which keeps no scores.

        n (norms + mlp) + attention

    n tokens. A normalisation keeps its input, its output and what it divided by: RMS 3 d + 1, layer normalisation
    2 d + 2. An MLP keeps 4 f with a gate (both inputs, the activated one and the product), else 2 f; of k experts that
    a token meets each keeps that, and the token twice. keys, shared, repeated, attention: as `attention_of_layer`.

    For GPT-2 it is 17 d + H + 4, as Korthikanti et al. 2022 (arXiv 2205.05198) count without dropout's masks; their
    5 a s / h is what attention that is not fused would add.
    """
    norms = 2 * _norm(shape)
    if shape.head_norm:  # on each head: queries and keys inside the product that values come from too, and divided
        norms += 2 * shape.queries + 3 * shape.keys + shape.heads + shape.kv_heads
    mlp = shape.active * _gates(shape, 4, 2)
    if shape.experts > 1:
        mlp += 2 * shape.active * shape.width + 3 * shape.experts
    return tokens * (norms + mlp) + attention_of_layer(shape, tokens, keys, shared, repeated=repeated)


def attention_of_layer(shape: ModelShape, tokens: float, keys: float, shared: float, *, repeated: bool) -> float:
    """n (3 H D + H) + 2 K D (keys read): queries, their output, the output's copy in the order of tokens, and one
    number a head; and keys and values.

    keys: those read by segments of their own. shared: those read behind a prompt that its group shares; `repeated` for
    all heads where no fused kernel takes them as they are.
    """
    heads = shape.queries if repeated else shape.keys
    return tokens * (3 * shape.queries + shape.heads) + 2 * shape.keys * keys + 2 * heads * shared


def computed_again(shape: ModelShape, tokens: float) -> float:
    """Numbers of `made_by_layer` that are not kept, since large products compute what they read again
    (`polopt.policies.recompute`): all of a normalisation but its input, and of an MLP all but its products."""
    large = large_products(shape)
    norms = sum(large) * (_norm(shape) - shape.width)
    return tokens * (norms + large[1] * _gates(shape, 2, 1))


def large_products(shape: ModelShape) -> tuple[bool, bool]:
    """Tests whether the products of attention, and of the MLP, keep their input from before its normalisation or
    activation."""
    attention, mlp = (n * shape.width >= LARGE for n in (max(shape.queries, shape.keys), shape.inner))
    return attention, mlp


def cast(shape: ModelShape, size: int, *, checkpointing: bool) -> float:
    """Bytes of weights in another precision than their own that exist at once: the output layer's, and those of one
    layer, or of all where their products are small and keep what they multiplied."""
    if checkpointing or all(large_products(shape)):
        return size * (shape.layer + shape.head)
    return size * shape.parameters


def _norm(shape: ModelShape) -> int:
    return 2 * shape.width + 2 if shape.norm_bias else 3 * shape.width + 1


def _gates(shape: ModelShape, gated: int, plain: int) -> int:
    """Returns `gated` or `plain` times f, for an MLP with a gate, or without."""
    return (gated if shape.gated else plain) * shape.inner


def activations(
    shape: ModelShape,
    tokens: float,
    keys: float,
    shared: float,
    size: int,
    *,
    stream: int = 0,
    kind: str = "cpu",
    checkpointing: bool = False,
    again: bool = True,
) -> float:
    """Bytes of what all layers keep: of each of L `made_by_layer` but for what is `computed_again`; with checkpointing
    L inputs n d, and one layer's rest.

    stream: bytes of a number that layers pass on, if these are more than `size`. kind: of the device. On a CPU
    attention is computed in 32 bits at least, and keys are not repeated. again: False where adapters or experts keep
    what others compute again.
    """
    cpu = kind == "cpu"
    numbers = made_by_layer(shape, tokens, keys, shared, repeated=not cpu)
    attention = attention_of_layer(shape, tokens, keys, shared, repeated=not cpu)
    rest = numbers - attention - (computed_again(shape, tokens) if again and shape.experts == 1 else 0)
    inputs, wide = tokens * shape.width, max(size, stream)
    layer = size * rest + 2 * (wide - size) * inputs + (max(size, 4) if cpu else size) * attention
    return shape.layers * wide * inputs + layer if checkpointing else shape.layers * layer


def logits(decided: float, vocabulary: int, most: float, keep: float = 0) -> float:
    """12 bytes for each logit that exists at once: itself, its exponential and its gradient, in float32. `most` of
    them at a time; and 4 bytes for all of them where these are more and at most `keep`."""
    total = decided * vocabulary
    return 12 * min(total, most) + 4 * total * (most < total <= keep)


def sharded(whole: float, shards: int) -> float:
    """Bytes of one shard (ZeRO stage 3, arXiv 1910.02054)."""
    return whole / shards


def gathered(shape: ModelShape, size: float) -> float:
    """Bytes of a sharded model that are gathered while in use: two layers, the one in use and the next, and the larger
    of the tables (PyTorch FSDP, arXiv 2304.11277)."""
    return size * (2 * shape.layer + shape.head)
