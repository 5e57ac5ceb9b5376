"""Next-token logits of rows that grow by one token at a time, by a decoder or by transformers' own forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from polopt import ops
from polopt.config import ConfigError
from polopt.policies.attention import attention
from polopt.policies.decoder import Decoder
from polopt.policies.packing import pack

# Initial capacity of the cache, in new tokens.
FIRST_CAPACITY = 16


class Steps(Protocol):
    """Next-token logits of a batch of rows that all grow by one token at a time."""

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        """Returns the logits after each context, [sum of copies, V], and reserves `limit` tokens at most."""

    def step(self, token: Tensor) -> Tensor:
        """Appends one token [rows] to each row and returns the next logits [rows, V]."""

    def keep(self, rows: Tensor) -> None:
        """Keeps some rows only; most of them keep their index, rows[i] = i."""

    def fork(self, rows: Tensor) -> None:
        """Appends copies of these rows after all others; a row may be given several times."""


class DecoderSteps:
    """Steps by a decoder: prompts are read without padding, keys and values are written in place."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.layers = [layer.prepared(decoder.dtype) for layer in decoder.layers()]
        self.final_norm, self.head = decoder.final_norm(), decoder.head().prepared(decoder.dtype)

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        decoder, device = self.decoder, self.decoder.model.device
        length = torch.tensor([len(c) for c in contexts])
        self.width = width = int(length.max())
        self.most = width + limit
        tokens = torch.full((len(contexts), width), -1)
        for row, context in zip(tokens, contexts, strict=True):
            row[: len(context)] = torch.tensor(context)
        packed = pack(tokens.to(device), torch.zeros_like(length), length, decoder.dtype)
        shared = torch.arange(len(contexts)).repeat_interleave(torch.tensor(copies)).to(device)
        # Contexts are aligned at their ends, so that a new token has the same column in every row.
        place = torch.arange(width) - (width - length)[:, None]
        flat = packed.where.gather(1, place.clamp(min=0).to(device))
        self.bias: Tensor | None = None
        if bool((length < width).any()):
            blank = torch.zeros(len(contexts), 1, 1, width + limit, dtype=decoder.dtype)
            blank[:, 0, 0, :width].masked_fill_(place < 0, -torch.inf)
            self.bias = blank.to(device)[shared]

        x = decoder.embed(packed.tokens, packed.position)
        rotation = decoder.rotations(packed.position)
        # One buffer a layer, [2, rows, K, room, D] for keys and values, in which later tokens are written.
        self.cache, room = [], self.capacity(width, FIRST_CAPACITY)
        for layer in self.layers:
            q, kv = layer.project(x, rotation)
            prompt = kv[flat].permute(2, 0, 3, 1, 4)
            cache = self.reserved(prompt, 2, len(shared), layer.kv_heads, room, layer.width)
            cache[:, :, :, :width] = prompt[:, shared]
            self.cache.append(cache)
            attended = packed.attend(q, kv)
            if layer is self.layers[-1]:
                x, attended = x[flat[:, -1]], attended[flat[:, -1]]
            x = layer.finish(x, attended)
        self.position = length.to(device)[shared]
        self.rotations = decoder.rotations(torch.arange(width + limit, device=device))
        return self._logits(x)[shared]

    def step(self, token: Tensor) -> Tensor:
        x = self.decoder.embed(token, self.position)
        rotation = None if self.rotations is None else self.rotations[:, self.position]
        column, self.width = self.width, self.width + 1
        self.grow(column)
        bias = None if self.bias is None else self.bias[..., : self.width]
        for layer, cache in zip(self.layers, self.cache, strict=True):
            q, kv = layer.project(x, rotation)
            cache[:, :, :, column] = kv.transpose(0, 1)
            keys, values = cache[:, :, :, : self.width].unbind(0)
            # Query heads that share a key head are queries of one attention.
            attended = attend(q.view(len(q), layer.kv_heads, -1, layer.width), keys, values, bias)
            x = layer.finish(x, attended.reshape(q.shape))
        self.position = self.position + 1
        return self._logits(x)

    def capacity(self, used: int, more: int) -> int:
        """Returns the number of columns to reserve where `used` are in use and some `more` are expected."""
        return min(self.most, used + more)

    def reserved(self, like: Tensor, *shape: int) -> Tensor:
        """Returns a buffer for keys and values."""
        return like.new_empty(shape)

    def grow(self, column: int) -> bool:
        """Copies the cache to larger buffers if it has no room for `column`; returns whether it did."""
        if column < self.cache[0].shape[3]:
            return False
        # At most doubled: a larger unused reserve would spread the used part over more memory.
        capacity = self.capacity(column, column)
        for i, cache in enumerate(self.cache):
            self.cache[i] = self.reserved(cache, *cache.shape[:3], capacity, cache.shape[4])
            self.cache[i][:, :, :, :column] = cache
        return True

    def keep(self, rows: Tensor) -> None:
        self.position = self.position[rows]
        self.bias = None if self.bias is None else self.bias[rows]
        to = (rows != torch.arange(len(rows), device=rows.device)).nonzero().flatten()
        moved = rows[to]
        for i, cache in enumerate(self.cache):
            used = cache[:, :, :, : self.width]
            used[:, to] = used[:, moved]
            self.cache[i] = cache[:, : len(rows)]

    def fork(self, rows: Tensor) -> None:
        self.position = torch.cat([self.position, self.position[rows]])
        self.bias = None if self.bias is None else torch.cat([self.bias, self.bias[rows]])
        self.cache = [torch.cat([cache, cache[:, rows]], 1) for cache in self.cache]

    def _logits(self, x: Tensor) -> Tensor:
        return self.head(self.final_norm(x))


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Returns attention [B, K, R, D] of queries [B, K, R, D] to all of k and v [B, K, T, D]."""
    if not by_products(q):
        return attention(q, k, v, bias=bias)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
    return (scores if bias is None else scores + bias).softmax(-1) @ v


def by_products(q: Tensor) -> bool:
    """Returns True on a CPU, where plain products are faster than the fused kernel for so few queries."""
    return q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64)


class ModelSteps:
    """Steps by transformers' own forward pass, for any model whose layers are all attention."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        device, width = self.model.device, max(map(len, contexts))
        ids = torch.zeros(len(contexts), width, dtype=torch.long)
        seen = torch.zeros(len(contexts), width + limit, dtype=torch.long)
        for i, context in enumerate(contexts):
            ids[i, width - len(context) :] = torch.tensor(context)
            seen[i, width - len(context) :] = 1
        ids, seen = ids.to(device), seen.to(device)
        self.width, self.cache = width, _cache(self.model, width + limit)
        position = (seen[:, :width].cumsum(1) - 1).clamp(min=0)
        logits = self._forward(ids, seen[:, :width], position)
        shared = torch.arange(len(contexts)).repeat_interleave(torch.tensor(copies)).to(device)
        self.cache.reorder_cache(shared)
        self.seen, self.position = seen[shared], position[shared, -1:]
        return logits[shared]

    def step(self, token: Tensor) -> Tensor:
        self.width, self.position = self.width + 1, self.position + 1
        return self._forward(token[:, None], self.seen[:, : self.width], self.position)

    def keep(self, rows: Tensor) -> None:
        self.seen, self.position = self.seen[rows], self.position[rows]
        self.cache.reorder_cache(rows)

    def fork(self, rows: Tensor) -> None:
        self.keep(torch.cat([torch.arange(len(self.seen), device=rows.device), rows]))

    def _forward(self, ids: Tensor, seen: Tensor, position: Tensor) -> Tensor:
        output = self.model(
            input_ids=ids,
            attention_mask=seen,
            position_ids=position,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]


class MixedSteps:
    """Steps of the geometric mixture of two policies, whose logits are (1 - share) first + share second: up to a
    constant of each row, the mixture of their log-probabilities.

    share: strictly between 0 and 1.

    Raises:
        ValueError: the two have other numbers of token ids.
    """

    def __init__(self, first: Steps, second: Steps, share: float) -> None:
        self.both, self.share = (first, second), share

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        return self._mixed(*(steps.begin(contexts, copies, limit) for steps in self.both))

    def step(self, token: Tensor) -> Tensor:
        return self._mixed(*(steps.step(token) for steps in self.both))

    def keep(self, rows: Tensor) -> None:
        for steps in self.both:
            steps.keep(rows)

    def fork(self, rows: Tensor) -> None:
        for steps in self.both:
            steps.fork(rows)

    def _mixed(self, first: Tensor, second: Tensor) -> Tensor:
        if first.shape != second.shape:
            raise ValueError(
                f"a mixture needs two policies over the same token ids, found {first.shape[-1]} and {second.shape[-1]}"
            )
        return (1 - self.share) * ops.wide(first) + self.share * ops.wide(second)


def check_attention(model: Any) -> None:
    """Raises an error for a model that the sampler does not support.

    Raises:
        ConfigError: it has recurrent layers.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import LinearAttentionCacheLayerMixin

    layers = DynamicCache(config=model.config).layers
    if model._is_stateful or any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers):
        raise ConfigError(
            f"{type(model).__name__} has recurrent layers, which cannot read prompts of different lengths together; "
            "take a model whose layers are all attention"
        )


def _cache(model: Any, length: int) -> Any:
    """Returns a cache that is written in place where the model's layers are plain attention, and grows otherwise."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    check_attention(model)
    cache = DynamicCache(config=model.config)
    if all(type(layer) is DynamicLayer for layer in cache.layers):
        cache.layers = [_reserved_layer(length) for _ in cache.layers]
    return cache


def _reserved_layer(length: int) -> Any:
    from transformers.cache_utils import DynamicLayer

    class Reserved(DynamicLayer):
        """A cache layer whose keys and values are views of buffers reserved once, so that a token is written without
        copying the past."""

        def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
            super().lazy_initialization(key_states, value_states)
            shape = [*key_states.shape[:2], length, key_states.shape[3]]
            self.key_buffer = key_states.new_empty(shape)
            self.value_buffer = value_states.new_empty([*shape[:3], value_states.shape[3]])

        def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            start = self.get_seq_length()
            end = start + key_states.shape[2]
            self.key_buffer[:, :, start:end] = key_states
            self.value_buffer[:, :, start:end] = value_states
            self.keys, self.values = self.key_buffer[:, :, :end], self.value_buffer[:, :, :end]
            return self.keys, self.values

        def reorder_cache(self, rows: Tensor) -> None:
            if not self.is_initialized:  # a layer that reads another layer's cache
                return
            end = self.get_seq_length()
            for name in ("key_buffer", "value_buffer"):
                old = getattr(self, name)
                new = old.new_empty([len(rows), *old.shape[1:]])
                new[:, :, :end] = old[rows, :, :end]
                setattr(self, name, new)
            self.keys, self.values = self.key_buffer[:, :, :end], self.value_buffer[:, :, :end]

    return Reserved()
