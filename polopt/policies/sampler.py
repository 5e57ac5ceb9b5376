"""Sampling from a causal language model: token ids in, token ids and behaviour log-probabilities out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Support

# Finished rows leave the batch when at most this share is still running.
KEEP = 0.75


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One continuation. logp and entropy belong to the sampler's support, one number a token.

    tokens: ids, the stop token included. stopped: it ended with a stop token; False means cut off by the
    limit. kept: per token the ids that top-k and top-p left to choose from, None where they left all. An engine
    that does not know gives no entropy (None).
    """

    tokens: list[int]
    logp: list[float]
    entropy: list[float] | None
    stopped: bool
    kept: list[Tensor] | None


@torch.no_grad()
def sample(
    model: Any,
    contexts: Sequence[Sequence[int]],
    *,
    group: int,
    support: Support,
    limit: int,
    stop: frozenset[int],
    generator: torch.Generator,
) -> list[Sampled]:
    """`group` continuations of each context, at most `limit` tokens long; context i's are rows i*group onwards.

    Contexts are read once each and their cache is shared out to the group; finished rows leave the batch.
    The random numbers a row consumes do not depend on when other rows finish.

    Raises:
        ValueError: a context without tokens, or a model with recurrent layers.
        FloatingPointError: the model's logits are not finite.
    """
    if not contexts:
        return []
    if not all(map(len, contexts)):
        raise ValueError("sample: every context needs at least one token to continue, found an empty one")
    device = model.device
    rows, width = len(contexts) * group, max(map(len, contexts))
    noise = torch.rand(limit, rows, generator=generator, dtype=torch.float64).to(device)
    ids = torch.zeros(len(contexts), width, dtype=torch.long)
    seen = torch.zeros(len(contexts), width + limit, dtype=torch.long)
    for i, context in enumerate(contexts):
        ids[i, width - len(context) :] = torch.tensor(context)
        seen[i, width - len(context) :] = 1
    ids, seen = ids.to(device), seen.to(device)

    cache = _cache(model, width + limit)
    position = (seen[:, :width].cumsum(1) - 1).clamp(min=0)
    logits = _forward(model, ids, seen[:, :width], position, cache)
    shared = torch.arange(len(contexts), device=device).repeat_interleave(group)
    cache.reorder_cache(shared)
    logits, seen, position = logits[shared], seen[shared], position[shared, -1:]

    record = _Record(rows, limit, logits, support, stop)
    stops = torch.tensor(sorted(stop), dtype=torch.long, device=device)
    alive = torch.arange(rows, device=device)
    running = torch.ones(rows, dtype=torch.bool, device=device)
    for step in range(limit):
        token = record.choose(step, alive, running, logits, noise[step])
        running = running & ~torch.isin(token, stops)
        going = running.nonzero().flatten()
        if not len(going) or step + 1 == limit:
            break
        # Dropping rows copies the cache, so it waits until it saves more than it costs.
        if len(going) <= KEEP * len(alive):
            alive, token, position, seen, running = (x[going] for x in (alive, token, position, seen, running))
            cache.reorder_cache(going)
        position = position + 1
        logits = _forward(model, token[:, None], seen[:, : width + step + 1], position, cache)
    return record.rows()


def _forward(model: Any, ids: Tensor, seen: Tensor, position: Tensor, cache: Any) -> Tensor:
    output = model(
        input_ids=ids,
        attention_mask=seen,
        position_ids=position,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return ops.wide(output.logits[:, -1])


class _Record:
    """What was chosen, row by row and step by step."""

    def __init__(self, rows: int, limit: int, like: Tensor, support: Support, stop: frozenset[int]) -> None:
        self.support, self.stop = support, stop
        self.tokens = torch.full((rows, limit), -1, device=like.device)
        self.logp = like.new_zeros(rows, limit)
        self.entropy = like.new_zeros(rows, limit)
        self.kept: list[dict[int, Tensor]] = []

    def choose(self, step: int, rows: Tensor, running: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        """Draw each row's next token by inverting the cumulative distribution at the row's own noise; note it
        where the row is still running."""
        logits = logits / self.support.temperature
        if self.support.truncated:
            keep = ops.kept_choices(logits, self.support.top_k, self.support.top_p)
            logits = logits.masked_fill(~keep, -torch.inf)
            ids = [row.nonzero().flatten().cpu() for row in keep]
            self.kept.append(dict(zip(rows.tolist(), ids, strict=True)))
        logp = logits.log_softmax(-1)
        reached = logp.exp().double().cumsum(-1)
        total = reached[:, -1:]
        if not total.isfinite().all():
            raise FloatingPointError("sample: the model's logits are not finite; its weights, or training, diverged")
        # Below the total mass even after rounding, so that a choice of probability 0 is never drawn.
        target = torch.minimum(noise[rows, None] * total, torch.nextafter(total, torch.zeros_like(total)))
        token = torch.searchsorted(reached, target, right=True).flatten()
        self.tokens[rows, step] = torch.where(running, token, -1)
        self.logp[rows, step] = logp.gather(1, token[:, None]).flatten()
        self.entropy[rows, step] = ops.entropy_of(logp)
        return token

    def rows(self) -> list[Sampled]:
        lengths = (self.tokens >= 0).sum(1).tolist()
        columns = zip(lengths, self.tokens.tolist(), self.logp.tolist(), self.entropy.tolist(), strict=True)
        return [
            Sampled(
                tokens=tokens[:n],
                logp=logp[:n],
                entropy=entropy[:n],
                stopped=bool(n) and tokens[n - 1] in self.stop,
                kept=[self.kept[t][row] for t in range(n)] if self.support.truncated else None,
            )
            for row, (n, tokens, logp, entropy) in enumerate(columns)
        ]


def _cache(model: Any, length: int) -> Any:
    """A cache that is written in place where the model's layers are plain attention, and grows otherwise."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

    cache = DynamicCache(config=model.config)
    if model._is_stateful or any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in cache.layers):
        raise ValueError(
            f"sample: {type(model).__name__} has recurrent layers, which cannot read prompts of different lengths "
            "together; take a model whose layers are all attention"
        )
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
