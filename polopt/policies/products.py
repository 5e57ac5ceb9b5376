"""Products with a layer's weights, by the faster of the processor's libraries.

On a CPU PyTorch multiplies float32 numbers by its BLAS, which is MKL. oneDNN, by which it multiplies bfloat16, is
mostly 1.1 to 1.5 times as fast in x wᵀ and in g w on the shapes of language models, and slower in gᵀ x.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

# Smaller weights stay in the processor's cache, where oneDNN saves less than calling it costs.
LARGE = 2**18


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns x wᵀ + bias, [N, out], of x [N, in] and weight [out, in], as `torch.nn.functional.linear`, with its
    gradients."""
    if not _by_onednn(x, weight):
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias)


def prepared(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Returns x -> `linear` without gradient, for many calls with few rows.

    The weights are converted once to the layout that the processor's library would otherwise convert them to in every
    call.
    """
    if weight.device.type != "cpu" or weight.numel() < LARGE or not _has_onednn(weight.dtype):
        return lambda x: F.linear(x, weight, bias)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    return lambda x: _product(x, laid_out, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            _product(slope, weight.t()) if to_x else None,
            slope.t() @ x if to_weight else None,
            slope.sum(0) if to_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Returns True for large float32 products on the CPU; PyTorch uses oneDNN for bfloat16 already, and other types
    would be computed in another precision."""
    plain = x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu"
    return plain and x.ndim == 2 and len(x) > 0 and weight.numel() >= LARGE and _has_onednn(x.dtype)


@functools.cache
def _has_onednn(dtype: torch.dtype) -> bool:
    """Returns True if PyTorch was built with oneDNN and has the operations by which its compiler calls it, and the
    processor has the instructions that they need."""
    names = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in names):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
