"""Arithmetic of a transformer, in floating-point operations; a multiplication and an addition are two."""

from __future__ import annotations

from polopt.plan.shape import ModelShape


def forward(shape: ModelShape, tokens: float, pairs: float, decided: float) -> float:
    """2 M n + 4 L H D c + 2 V d m for n tokens with c pairs of query and key, of which m meet the vocabulary.

    M are the layers' products (Kaplan et al. 2020, arXiv 2001.08361: 2 N per token, and 2 n_ctx d_attn per layer for
    the scores; as many again for their mean of values). Normalisation, softmax and activations are not counted.
    """
    attention = 4 * shape.layers * shape.queries * pairs
    return 2 * shape.matrix * tokens + attention + 2 * shape.head * decided


def backward(shape: ModelShape, tokens: float, pairs: float, decided: float) -> float:
    """Twice `forward`: gradients by inputs and by weights (6 N per token in all; Hoffmann et al. 2022, arXiv
    2203.15556)."""
    return 2 * forward(shape, tokens, pairs, decided)


def recomputed(shape: ModelShape, tokens: float, pairs: float) -> float:
    """FLOPs that checkpointing computes again: the layers' forward pass (Korthikanti et al. 2022, arXiv 2205.05198)."""
    return forward(shape, tokens, pairs, 0)


def causal(length: float) -> float:
    """Pairs of n tokens that attend to themselves and to earlier ones: n (n + 1) / 2."""
    return length * (length + 1) / 2


def behind(prompt: float, length: float) -> float:
    """Pairs of n tokens after a prompt of p, to which they all attend: n p + n (n + 1) / 2."""
    return length * prompt + causal(length)
