"""What a language policy is asked of the decisions of a batch, and which rows and columns it reads to answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import SAID
from polopt.experience import Experience
from polopt.layers import Layer, Said, layer_of


@dataclasses.dataclass(frozen=True)
class Query:
    """What is asked of N decisions: the ids `chosen` [N] of those `kept` [N, K], and as `vocabulary.score`; the policy
    names the `top` candidates itself, if > 0."""

    chosen: Tensor
    kept: Tensor | None
    temperature: float | Tensor
    names: frozenset[str]
    candidates: Tensor | None
    top: int


def query_at(
    experience: Experience, row: Tensor, column: Tensor, *, names: frozenset[str], named: bool, top: int
) -> Query:
    """What is asked of the decisions at (row, column) of a batch. named: whether the batch names the candidates.

    Raises:
        ValueError: a temperature that is not positive.
    """
    temperature, extras = experience.temperatures, experience.extras
    if isinstance(temperature, Tensor):
        temperature = temperature[row, column]
        if not (temperature > 0).all():
            raise ValueError('LanguagePolicy.evaluate: extras["temperature"] must be > 0 at every decision')
    return Query(
        chosen=extras["tokens"][row, column],
        kept=extras["kept"][row, column] if experience.support.truncated else None,
        temperature=temperature,
        names=names,
        candidates=extras["candidates"][row, column] if named else None,
        top=top,
    )


def layers_in(extras: Iterable[str]) -> dict[Layer, set[Said]]:
    """What is asked of which layer."""
    found: dict[Layer, set[Said]] = {}
    for said, layer in filter(None, map(layer_of, extras)):
        found.setdefault(layer, set()).add(said)
    return found


def begun(experience: Experience) -> Tensor:
    """[B, T] the decisions, and those that a selection has left out as far as `turn` knows them: a row's prompt ends
    before all of them, and only prompts are what rows share."""
    if experience.turn is None:
        return experience.mask
    return experience.mask | ((experience.turn >= 0) & (experience.turn[:, :1] < 0))


def from_column_0(tokens: Tensor, columns: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [B, T] with padding on the left moved to the right, the columns to match, and where rows began."""
    real = tokens >= 0
    first = torch.where(real.any(1), real.int().argmax(1), 0)
    if not first.any():
        return tokens, columns, first
    source = torch.arange(tokens.shape[1], device=tokens.device) + first[:, None]
    inside = source < tokens.shape[1]
    moved = torch.where(inside, tokens.gather(1, source.clamp(max=tokens.shape[1] - 1)), -1)
    return moved, columns - first[rows], first


def positions_read(mask: Tensor, row: Tensor, column: Tensor, *, final: bool) -> tuple[Tensor, Tensor]:
    """Rows and columns of the hidden states that the decisions at (row, column) are taken on: the decision at t on that
    at t - 1. final: behind them those after each row's last decision, whose value is the final one."""
    if not final:
        return row, column - 1
    every = torch.arange(len(mask), device=mask.device)
    last = torch.where(mask, torch.arange(mask.shape[1], device=mask.device), 0).amax(1)
    return torch.cat([row, every]), torch.cat([column - 1, last])


def by_position(said: dict[str, Tensor], mask: Tensor, row: Tensor, column: Tensor) -> dict[str, Any]:
    """Fields of an `Evaluation`, [B, T, ...] each, from what is said of the decisions at (row, column), [N, ...] each;
    elsewhere they hold 0 (ids: -1)."""

    def spread(values: Tensor, blank: int = 0) -> Tensor:
        return values.new_full((*mask.shape, *values.shape[1:]), blank).index_put((row, column), values)

    fields = {name: spread(said[name]) for name in SAID if name in said}
    more = {name: spread(v, -1 if name == "candidates" else 0) for name, v in said.items() if name not in SAID}
    return {**fields, "extras": more}
