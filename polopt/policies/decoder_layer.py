"""One layer of a decoder-only transformer on flat tokens: projections, rotary positions, feed-forward network."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from polopt.policies.linear_maps import Linear, Prepared
from polopt.policies.recompute import Rowwise


@dataclasses.dataclass(frozen=True)
class DecoderLayer:
    """A decoder layer: h = x + out(attention(qkv(norm(x)))), then h + down(mix(up(norm(h)))).

    `heads` query heads share `kv_heads` key and value heads of `width`. query_norm, key_norm act on each head.
    """

    heads: int
    kv_heads: int
    width: int
    norm: Rowwise
    qkv: Linear | Prepared
    out: Linear | Prepared
    mlp_norm: Rowwise
    up: Linear | Prepared
    mix: Rowwise
    down: Linear | Prepared
    query_norm: Rowwise | None = None
    key_norm: Rowwise | None = None

    def project(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns queries [N, H, D], and keys and values [N, 2, K, D], of x [N, d].

        rotation: [2, N, 1, D], the cosines and sines.
        """
        qkv, width = self.qkv.joined(self.norm, x), self.width
        if self.query_norm is not None and self.key_norm is not None:
            q, k, v = qkv.view(len(x), -1, width).split([self.heads, self.kv_heads, self.kv_heads], 1)
            qkv = torch.cat([self.query_norm(q), self.key_norm(k), v], 1).flatten(1)
        if rotation is not None:
            qkv = _rotated(qkv, rotation, self.heads + self.kv_heads)
        q, kv = qkv.view(len(x), -1, width).split([self.heads, 2 * self.kv_heads], 1)
        return q, kv.unflatten(1, (2, self.kv_heads))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Returns the layer's output [N, d], from its input x [N, d] and attention's [N, H, D]."""
        h = _plus(self.out(attended.flatten(1)), x)
        return _plus(self.down.joined(self.mix, *self.up.each(self.mlp_norm, h)), h)

    def prepared(self, dtype: torch.dtype) -> DecoderLayer:
        """Returns the layer with all its products `Linear.prepared`."""
        return dataclasses.replace(self, **{n: getattr(self, n).prepared(dtype) for n in ("qkv", "out", "up", "down")})


def _plus(made: Tensor, x: Tensor) -> Tensor:
    """Returns made + x, computed in place in `made` if x is not wider."""
    return made.add_(x) if made.dtype == x.dtype else x + made


def _rotated(qkv: Tensor, rotation: Tensor, heads: int) -> Tensor:
    """Rotates the first `heads` heads of qkv [N, numbers of all heads], in place."""
    return _Rotated.apply(qkv, rotation, heads) if torch.is_grad_enabled() else _rotate(qkv, rotation, heads)


def _rotate(qkv: Tensor, rotation: Tensor, heads: int) -> Tensor:
    half = rotation.shape[-1] // 2
    cosine, sine = rotation[..., :half]
    x = qkv.view(len(qkv), -1, 2 * half)[:, :heads]
    a, b = x[..., :half], x[..., half:]  # not by chunk, whose views autograd does not allow in-place operations on
    old = a.clone()
    a.mul_(cosine).addcmul_(b, sine, value=-1)
    b.mul_(cosine).addcmul_(old, sine)
    return qkv


class _Rotated(torch.autograd.Function):
    """A rotation in place, whose gradient is rotated back."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, rotation: Tensor, heads: int) -> Tensor:
        ctx.mark_dirty(qkv)
        ctx.rotation, ctx.heads = rotation, heads
        return _rotate(qkv, rotation, heads)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.rotation
        return (
            _rotate(slope.clone(memory_format=torch.contiguous_format), torch.stack([cosine, -sine]), ctx.heads),
            None,
            None,
        )
