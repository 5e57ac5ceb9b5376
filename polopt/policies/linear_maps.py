"""Linear maps with biases and adapters, several of one input at once, and versions prepared for many calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.policies import products, recompute
from polopt.policies.recompute import AS_IT_IS, Rowwise

Function = Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class LowRank:
    """An adapter's addition to a linear map: x -> scale up down x.

    down: [r, in].
    up: [out, r].
    """

    down: Tensor
    up: Tensor
    scale: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.down.to(x.dtype)), self.up.to(x.dtype)) * self.scale

    def whole(self, dtype: torch.dtype) -> Tensor:
        """Returns the addition to the weights, [out, in]."""
        return self.scale * (self.up.to(dtype) @ self.down.to(dtype))


@dataclasses.dataclass(frozen=True)
class Linear:
    """Several linear maps of one input x, concatenated.

    Weights [out, in], biases or None, and adapters or None are converted to x's precision.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    adapters: tuple[LowRank | None, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return self.joined(AS_IT_IS, x)

    def joined(self, before: Rowwise, *inputs: Tensor) -> Tensor:
        """Returns the maps of before(*inputs), concatenated, [N, out]."""
        parts = self.each(before, *inputs)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def each(self, before: Rowwise, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns the maps of before(*inputs), separately."""
        if not any(self.adapters):
            return recompute.linear(before, inputs, self.weights, self.biases)
        x = before(*inputs)
        parts = recompute.linear(AS_IT_IS, (x,), self.weights, self.biases)
        return tuple(y if a is None else y + a(x) for y, a in zip(parts, self.adapters, strict=True))

    def prepared(self, dtype: torch.dtype) -> Prepared:
        """Returns the maps prepared for many calls with these weights and few rows, in one precision.

        Adapters are merged into the weights, except in a precision that would round away their contribution.
        """
        (weight,), (bias,), (adapter,) = (merged := self._merged(dtype)).weights, merged.biases, merged.adapters
        product = merged if adapter is not None else products.prepared(weight, bias)
        return Prepared(product, tuple(map(len, self.weights)))

    def _merged(self, dtype: torch.dtype) -> Linear:
        weights = [w.to(dtype) for w in self.weights]
        biases = [b if b is None else b.to(dtype) for b in self.biases]
        adapters = self.adapters
        if torch.finfo(dtype).bits >= 32:
            weights = [w if a is None else w + a.whole(dtype) for w, a in zip(weights, adapters, strict=True)]
            adapters = (None,) * len(adapters)
        if len(weights) == 1:
            return Linear(tuple(weights), tuple(biases), adapters)
        whole = [w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases, strict=True)]
        bias = None if biases == [None] * len(biases) else torch.cat(whole)
        return Linear((torch.cat(weights),), (bias,), (_joint_adapter(weights, adapters),))


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A `Linear` as one product, with weights in the processor library's layout, which saves the conversion in every
    call.

    sizes: number of outputs of each of its maps.
    """

    product: Function
    sizes: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return self.product(x)

    def joined(self, before: Rowwise, *inputs: Tensor) -> Tensor:
        return self.product(before(*inputs))

    def each(self, before: Rowwise, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.joined(before, *inputs).split(self.sizes, -1)


def _joint_adapter(weights: list[Tensor], adapters: tuple[LowRank | None, ...]) -> LowRank | None:
    """Returns one adapter for all the maps of one x, with block-diagonal `up`."""
    if not any(adapters):
        return None
    nothing = [LowRank(w.new_zeros(0, w.shape[1]), w.new_zeros(len(w), 0), 1.0) for w in weights]
    each = [a or n for a, n in zip(adapters, nothing, strict=True)]
    dtype = weights[0].dtype
    up = torch.block_diag(*[(a.scale * a.up).to(dtype) for a in each])
    return LowRank(torch.cat([a.down.to(dtype) for a in each]), up, 1.0)
