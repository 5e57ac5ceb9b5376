"""Sampling from a causal language model: token ids in, token ids and behaviour log-probabilities out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt import ops
from polopt.config import ConfigError
from polopt.policies.decoder import Decoder
from polopt.policies.packing import pack
from polopt.support import Support

# Finished rows leave the batch when at most this share is still running.
KEEP = 0.75
# New tokens that the cache has room for at first.
ROOM = 16
# After how many tokens to ask whether rows have finished, which makes a GPU wait for the answer. What a row says
# after its stop is dropped.
PATIENCE = {"cpu": 1}


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One continuation. logp and entropy belong to the sampler's support, one number a token.

    tokens: ids, the stop token included. stopped: it ended with a stop token; False means cut off by the
    limit. kept: per token the ids that top-k and top-p left to choose from, None where they left all. An engine
    that does not know gives no entropy (None). noted: what else the sampler knows, one number a token: "temperature"
    and "plain_entropy", the entropy that it follows, where tokens have temperatures of their own.
    """

    tokens: list[int]
    logp: list[float]
    entropy: list[float] | None
    stopped: bool
    kept: list[Tensor] | None
    noted: dict[str, list[float]] = dataclasses.field(default_factory=dict)


def sample(
    model: Any,
    contexts: Sequence[Sequence[int]],
    *,
    group: int | Sequence[int],
    support: Support,
    limit: int,
    stop: frozenset[int],
    generator: torch.Generator,
    decoder: Decoder | None = None,
) -> list[Sampled]:
    """`group` continuations of each context (one number, or one each), at most `limit` tokens long, context by context.

    Contexts are read once each and their cache is shared out to the group; finished rows leave the batch.
    The random numbers a row consumes do not depend on when other rows finish. decoder: that of the model, if it
    has one; without it transformers' own forward pass is used, to the same end.

    Raises:
        ValueError: a context without tokens. ConfigError: a model with recurrent layers.
        FloatingPointError: the model's logits are not finite.
    """
    if not contexts:
        return []
    if not all(map(len, contexts)):
        raise ValueError("sample: every context needs at least one token to continue, found an empty one")
    copies = copies_of(contexts, group)
    noise = drawn(limit, sum(copies), generator)
    with torch.inference_mode():
        steps = ModelSteps(model) if decoder is None else DecoderSteps(decoder)
        logits = steps.begin(contexts, copies, limit)
        return _continue(steps, logits, noise.to(logits.device), support, stop)


def drawn(limit: int, rows: int, generator: torch.Generator) -> Tensor:
    """[limit, rows] what rows draw their tokens with, below 1 by enough that a fraction of the total mass stays below
    it after rounding."""
    return torch.rand(limit, rows, generator=generator, dtype=torch.float64) * (1 - 2**-52)


def copies_of(contexts: Sequence[Sequence[int]], group: int | Sequence[int]) -> list[int]:
    """How many continuations each context gets.

    Raises:
        ValueError: a number below 1, or not one number for each context.
    """
    copies = [group] * len(contexts) if isinstance(group, int) else list(group)
    if len(copies) != len(contexts) or min(copies, default=1) < 1:
        raise ValueError(f"sample: {len(contexts)} contexts need as many numbers of continuations >= 1, found {copies}")
    return copies


def _continue(steps: Steps, logits: Tensor, noise: Tensor, support: Support, stop: frozenset[int]) -> list[Sampled]:
    """Rows that grow from `logits` [rows, V] on, one token at each row of `noise` [limit, rows]."""
    limit, rows, device = *noise.shape, logits.device
    record = _Record(support, limit, ops.wide(logits))
    stops = torch.tensor(sorted(stop), dtype=torch.long, device=device)
    goes_on = ~torch.isin(torch.arange(logits.shape[-1], device=device), stops)
    alive = torch.arange(rows, device=device)
    running = torch.ones(rows, dtype=torch.bool, device=device)
    patience = PATIENCE.get(device.type, 16)
    for step in range(limit):
        token = record.choose(alive, logits, noise[step])
        if step + 1 == limit:
            break
        running = running & goes_on[token]
        if step % patience == patience - 1:
            record.settle()
            left = int(running.sum())
            if not left:
                break
            # Dropping rows moves others in the cache, so it waits until it saves more than it costs.
            if left <= KEEP * len(alive):
                going = _fill_holes(running, left)
                alive, token, running, noise = alive[going], token[going], running[going], noise[:, going]
                steps.keep(going)
        logits = steps.step(token)
    return record.rows(goes_on)


def _fill_holes(running: Tensor, left: int) -> Tensor:
    """[left] the rows that are running, the last of them in the places of those among the first that are not."""
    rows = torch.arange(left, device=running.device)
    rows[~running[:left]] = running[left:].nonzero().flatten() + left
    return rows


class Steps(Protocol):
    """Next-token logits of a batch of rows that all grow by one token at a time."""

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        """[sum of copies, V] logits behind each context, for `limit` tokens at most."""

    def step(self, token: Tensor) -> Tensor:
        """[rows, V] logits behind one more token [rows] each."""

    def keep(self, rows: Tensor) -> None:
        """Go on with some rows only; most of them stay where they are, rows[i] = i."""

    def fork(self, rows: Tensor) -> None:
        """Go on with copies of these rows too, which stand behind all others; a row may be named several times."""


class DecoderSteps:
    """On a decoder: prompts are read without padding, keys and values are written in place."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.layers = [layer.prepared(decoder.dtype) for layer in decoder.layers()]
        self.final_norm, self.head = decoder.final_norm(), decoder.head().prepared(decoder.dtype)

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        decoder, device = self.decoder, self.decoder.model.device
        length = torch.tensor([len(c) for c in contexts])
        self.width = width = int(length.max())
        tokens = torch.full((len(contexts), width), -1)
        for row, context in zip(tokens, contexts, strict=True):
            row[: len(context)] = torch.tensor(context)
        packed = pack(tokens.to(device), torch.zeros_like(length), length, decoder.dtype)
        shared = torch.arange(len(contexts)).repeat_interleave(torch.tensor(copies)).to(device)
        # Contexts end together, so that a new token has one place in every row.
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
        self.cache, self.most = [], width + limit
        for layer in self.layers:
            q, kv = layer.project(x, rotation)
            prompt = kv[flat].permute(2, 0, 3, 1, 4)
            cache = prompt.new_empty(2, len(shared), layer.kv_heads, width + min(limit, ROOM), layer.width)
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
        here, self.width = self.width, self.width + 1
        room = self.cache[0].shape[3]
        if here == room:
            # What is reserved and not used yet would spread the rest over memory, so it is no more than what is.
            self.cache = [_roomier(cache, min(self.most, 2 * room)) for cache in self.cache]
        bias = None if self.bias is None else self.bias[..., : self.width]
        for layer, cache in zip(self.layers, self.cache, strict=True):
            q, kv = layer.project(x, rotation)
            cache[:, :, :, here] = kv.transpose(0, 1)
            keys, values = cache[:, :, :, : self.width].unbind(0)
            # Query heads that share a key head are queries of one attention.
            attended = _attend(q.view(len(q), layer.kv_heads, -1, layer.width), keys, values, bias)
            x = layer.finish(x, attended.view(q.shape))
        self.position = self.position + 1
        return self._logits(x)

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


def _roomier(cache: Tensor, room: int) -> Tensor:
    """A copy of [2, rows, K, T, D] with room for more tokens."""
    new = cache.new_empty(*cache.shape[:3], room, cache.shape[4])
    new[:, :, :, : cache.shape[3]] = cache
    return new


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """[B, K, R, D] attention of queries [B, K, R, D] to everything, k and v [B, K, T, D]."""
    if q.device.type != "cpu" or q.dtype not in (torch.float32, torch.float64):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    # On a CPU plain products are faster than the fused kernel for so few queries.
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
    return (scores if bias is None else scores + bias).softmax(-1) @ v


class ModelSteps:
    """On transformers' own forward pass, for any model whose layers are all attention."""

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


def inverted(p: Tensor, noise: Tensor, reached: Tensor | None = None) -> Tensor:
    """[rows] the choices at which the cumulative distributions of p [rows, V] pass the noise [rows].

    reached: [rows, V] float64 to compute the cumulative distributions in, None for a new tensor.
    """
    reached = torch.cumsum(p, -1, dtype=torch.float64, out=reached)
    token = torch.searchsorted(reached, noise[:, None] * reached[:, -1:], right=True)
    # Beyond the last only where a logit is not finite, which is told at the end.
    return token.clamp_(max=p.shape[-1] - 1).flatten()


class _Record:
    """The choices of a rollout, in buffers of [limit, rows] that are reserved once.

    Nothing that outlives a step is allocated in it. A small tensor that stays, allocated between tensors of [rows, V]
    that go, would keep the heap from using their place again, and a rollout would grow by a tensor of logits a step.
    For the same reason the tensors of [rows, V] are computed in a workspace where an operation allows it.
    """

    def __init__(self, support: Support, limit: int, logits: Tensor) -> None:
        rows, self.device = len(logits), logits.device
        self.support, self.steps = support, 0
        self.token = torch.full((limit, rows), -1, device=self.device)
        self.logp, self.entropy = (logits.new_zeros(limit, rows) for _ in range(2))
        self.noted: dict[str, Tensor] = {}
        self.kept: list[list[Tensor]] = [[] for _ in range(rows)]
        self.pending: list[tuple[Tensor, Tensor]] = []
        # From which step on the columns hold which rows.
        self.columns: list[tuple[int, Tensor]] = []
        kinds = (logits.dtype, logits.dtype, torch.float64)  # log-probabilities, probabilities, and their running sum
        self.workspace = [torch.empty_like(logits, dtype=kind) for kind in kinds]

    def choose(self, rows: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        """Draw the next token of each of the `rows` by inverting its cumulative distribution at the row's noise."""
        step, count = self.steps, len(rows)
        if not self.columns or len(self.columns[-1][1]) != count:
            self.columns.append((step, rows))
        logp, p, reached = (buffer[:count] for buffer in self.workspace)
        if logits.dtype != p.dtype:
            logits = p.copy_(logits)  # there until they have become log-probabilities
        logits = ops.heated(logits, self._temperature(logits))
        if self.support.truncated:
            keep = ops.kept_choices(logits, self.support.top_k, self.support.top_p)
            logits = torch.where(keep, logits, -torch.inf)
            self.pending.append((rows, keep))
        torch.log_softmax(logits, -1, out=logp)
        torch.exp(logp, out=p)
        token = inverted(p, noise, reached)
        self.token[step, :count] = token
        self.logp[step, :count] = logp.gather(1, token[:, None])[:, 0]
        entropy = ops.entropy_of(logp) if self.support.truncated else -torch.linalg.vecdot(p, logp)
        self.entropy[step, :count] = entropy
        self.steps += 1
        return token

    def _temperature(self, logits: Tensor) -> float | Tensor:
        """One for all rows, or, where it follows the entropy, one for each, which is noted."""
        if self.support.by_entropy is None:
            return self.support.temperature
        entropy = ops.entropy_of(ops.heated(logits, self.support.temperature).log_softmax(-1))
        temperature = ops.temperatures(self.support, entropy)
        for name, values in (("temperature", temperature), ("plain_entropy", entropy)):
            buffer = self.noted.setdefault(name, values.new_zeros(self.token.shape))
            buffer[self.steps, : len(values)] = values
        return temperature

    def settle(self) -> None:
        """Store which choices top-k and top-p left, as ids instead of a mask over the vocabulary."""
        for rows, keep in self.pending:
            for row, mine in zip(rows.tolist(), keep.cpu(), strict=True):
                self.kept[row].append(mine.nonzero().flatten())
        self.pending.clear()

    def rows(self, goes_on: Tensor) -> list[Sampled]:
        steps = torch.arange(self.steps, device=self.device)
        tokens, logp, entropy = self._by_row(self.token), self._by_row(self.logp), self._by_row(self.entropy)
        stopped = (tokens >= 0) & ~goes_on[tokens.clamp(min=0)]
        ended = stopped.any(1)
        length = torch.where(ended, stopped.int().argmax(1) + 1, (tokens >= 0).sum(1))
        if not torch.where(steps < length[:, None], logp, 0).isfinite().all():
            raise FloatingPointError("sample: the model's logits are not finite; its weights, or training, diverged")
        self.settle()
        noted = {name: self._by_row(values).tolist() for name, values in self.noted.items()}
        lists = (length.tolist(), tokens.tolist(), logp.tolist(), entropy.tolist(), ended.tolist())
        return [
            Sampled(
                tokens=t[:n],
                logp=lp[:n],
                entropy=h[:n],
                stopped=end,
                kept=self.kept[row][:n] if self.support.truncated else None,
                noted={name: values[row][:n] for name, values in noted.items()},
            )
            for row, (n, t, lp, h, end) in enumerate(zip(*lists, strict=True))
        ]

    def _by_row(self, values: Tensor) -> Tensor:
        """[rows, steps] of a buffer [limit, columns]; where a row had gone, -1 for tokens and 0 for numbers."""
        found = values.new_full((values.shape[1], self.steps), 0 if values.is_floating_point() else -1)
        ends = [start for start, _ in self.columns[1:]] + [self.steps]
        for (start, rows), end in zip(self.columns, ends, strict=True):
            found[rows, start:end] = values[start:end, : len(rows)].T
        return found


def check_attention(model: Any) -> None:
    """Refuse a model that the sampler cannot draw from.

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
    """A cache that is written in place where the model's layers are plain attention, and grows otherwise."""
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
        """Keys and values are views of buffers reserved once, so a token is written, not the past copied."""

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
