"""Products whose cheap inputs are recomputed instead of stored for the backward pass.

Selective recomputation (Korthikanti et al. 2022, arXiv:2205.05198): a normalisation or activation costs little compared
with the products with a layer's weights that follow it, and its output is as large as its input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.policies import products


@dataclasses.dataclass(frozen=True)
class Rowwise:
    """A function of inputs with N rows, each row by itself: function(*inputs, *parameters), [N, in]."""

    function: Callable[..., Tensor]
    parameters: tuple[Tensor, ...] = ()

    def __call__(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, *self.parameters)


AS_IT_IS = Rowwise(lambda x: x)


def linear(
    before: Rowwise, inputs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """Returns before(*inputs) wᵀ + bias, [N, out], for each of the weights [out, in], in the precision of the inputs.

    For the backward pass the inputs are stored, in place of before(*inputs), where a weight has at least
    `products.LARGE` numbers. Such products are differentiable once.
    """
    large = any(weight.numel() >= products.LARGE for weight in weights)
    if not (large and torch.is_grad_enabled()):
        x = before(*inputs)
        return tuple(_product(x, w, b) for w, b in zip(weights, biases, strict=True))
    products_of_inputs: tuple[Tensor, ...] = _Products.apply(
        before.function, (len(inputs), len(weights)), *inputs, *weights, *biases, *before.parameters
    )
    return products_of_inputs


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return products.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], counts: tuple[int, int], *tensors: Any) -> Any:
        ctx.function, ctx.counts = function, counts
        ctx.save_for_backward(*tensors)
        inputs, weights, biases, parameters = _split(tensors, counts)
        x = function(*inputs, *parameters)
        return tuple(_product(x, w, b) for w, b in zip(weights, biases, strict=True))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weights, biases, parameters = _split(ctx.saved_tensors, ctx.counts)
        needs = _split(ctx.needs_input_grad[2:], ctx.counts)
        needs_gradient = (*needs[0], *needs[3])
        leaves = [
            t.detach().requires_grad_(need) for t, need in zip((*inputs, *parameters), needs_gradient, strict=True)
        ]
        with torch.enable_grad():
            x = ctx.function(*leaves)
        by_weight = [
            (slope.t() @ x.detach()).to(w.dtype) if need else None
            for slope, w, need in zip(slopes, weights, needs[1], strict=True)
        ]
        by_bias = [
            slope.sum(0).to(b.dtype) if need else None for slope, b, need in zip(slopes, biases, needs[2], strict=True)
        ]
        by_leaf: list[Tensor | None] = [None] * len(leaves)
        if any(needs_gradient):
            by_x = _product(slopes[0], weights[0].t(), None)
            for slope, weight in zip(slopes[1:], weights[1:], strict=True):
                by_x += _product(slope, weight.t(), None)
            gradients = iter(torch.autograd.grad(x, [leaf for leaf in leaves if leaf.requires_grad], by_x))
            by_leaf = [next(gradients) if need else None for need in needs_gradient]
        count = len(inputs)
        return (None, None, *by_leaf[:count], *by_weight, *by_bias, *by_leaf[count:])


def _split(values: Sequence[Any], counts: tuple[int, int]) -> tuple[Sequence[Any], ...]:
    """Splits values into those of the inputs, the weights, the biases and the function's parameters."""
    inputs, weights = counts
    second, third = inputs + weights, inputs + 2 * weights
    return values[:inputs], values[inputs:second], values[second:third], values[third:]
