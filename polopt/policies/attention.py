"""Attention by PyTorch's fused kernels, without the ones that are compiled anew for every shape."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None = None, causal: bool = False, shared: bool = False
) -> Tensor:
    """Returns softmax(q kᵀ / √D + bias) v, [B, H, L, D], of q [B, H, L, D] and of k and v [B, K, T, D]; the order of
    its dimensions in memory is the kernel's choice.

    bias: [B or 1, 1 or H, L, T].
    causal: query i reads keys 0 to i.
    shared: H is a multiple of K, and H / K queries in turn share a key head; else H = K.
    """
    with _no_compilation():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, enable_gqa=shared)


@contextlib.contextmanager
def _no_compilation() -> Iterator[None]:
    """Leaves out cuDNN's attention, which compiles a plan for every new shape, 50 ms on an H200: batches of text have a
    new shape each time."""
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)
