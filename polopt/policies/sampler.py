"""Sampling from a causal language model: token ids in, token ids and behaviour log-probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.policies.decoder import Decoder
from polopt.policies.graph_steps import steps_of
from polopt.policies.rollout_record import RolloutRecord, Sampled
from polopt.policies.sampler_steps import ModelSteps, Steps
from polopt.support import Support

# Finished rows leave the batch when at most this share is still running.
KEEP = 0.75
# Number of tokens between checks for finished rows, each of which synchronises with the GPU. Tokens after a row's stop
# are dropped.
PATIENCE = {"cpu": 1}


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
    """Samples `group` continuations of each context (one number, or one each), at most `limit` tokens long, context by
    context.

    Contexts are read once each and their cache is copied to the group; finished rows leave the batch. The random
    numbers a row consumes do not depend on when other rows finish.

    decoder: that of the model, if it has one; without it transformers' own forward pass is used, with the same result.

    Raises:
        ValueError: a context without tokens.
        ConfigError: a model with recurrent layers.
        FloatingPointError: the model's logits are not finite.
    """
    make = lambda: ModelSteps(model) if decoder is None else steps_of(decoder)  # noqa: E731
    ways: dict[str, Any] = {"group": group, "support": support, "limit": limit, "stop": stop, "generator": generator}
    return sample_steps(make, contexts, **ways)


def sample_steps(
    make: Callable[[], Steps],
    contexts: Sequence[Sequence[int]],
    *,
    group: int | Sequence[int],
    support: Support,
    limit: int,
    stop: frozenset[int],
    generator: torch.Generator,
) -> list[Sampled]:
    """Samples as `sample` does, from the next-token logits of any `Steps`, which `make` returns."""
    if not contexts:
        return []
    if not all(map(len, contexts)):
        raise ValueError("sample: every context needs at least one token to continue, found an empty one")
    copies = copies_of(contexts, group)
    noise = uniform_noise(limit, sum(copies), generator)
    with torch.inference_mode():
        steps = make()
        logits = steps.begin(contexts, copies, limit)
        return _continue(steps, logits, noise.to(logits.device), support, stop)


def uniform_noise(limit: int, rows: int, generator: torch.Generator) -> Tensor:
    """Returns uniform random numbers [limit, rows], below 1 by enough that the product with the total mass stays below
    it after rounding."""
    return torch.rand(limit, rows, generator=generator, dtype=torch.float64) * (1 - 2**-52)


def copies_of(contexts: Sequence[Sequence[int]], group: int | Sequence[int]) -> list[int]:
    """Returns the number of continuations of each context.

    Raises:
        ValueError: a number below 1, or not one number for each context.
    """
    copies = [group] * len(contexts) if isinstance(group, int) else list(group)
    if len(copies) != len(contexts) or min(copies, default=1) < 1:
        raise ValueError(f"sample: {len(contexts)} contexts need as many numbers of continuations >= 1, found {copies}")
    return copies


def _continue(steps: Steps, logits: Tensor, noise: Tensor, support: Support, stop: frozenset[int]) -> list[Sampled]:
    """Continues rows from `logits` [rows, V], one token for each row of `noise` [limit, rows]."""
    limit, rows, device = *noise.shape, logits.device
    record = RolloutRecord(support, limit, ops.wide(logits))
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
    """Returns the rows that are running, [left]: the last of them take the places of finished ones among the first."""
    rows = torch.arange(left, device=running.device)
    rows[~running[:left]] = running[left:].nonzero().flatten() + left
    return rows
