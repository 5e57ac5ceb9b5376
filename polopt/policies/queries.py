"""Queries of a language policy on the decisions of a batch, and the rows and columns that it reads for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import OUTPUTS
from polopt.experience import Experience
from polopt.layers import Layer, LayerOutput, layer_of


@dataclasses.dataclass(frozen=True)
class Query:
    """The outputs to compute for N decisions, see `vocabulary.score`.

    chosen: [N] the ids of the decisions.
    kept: [N, K] the ids of the support, None for all.
    top: if > 0, the number of likeliest ids to use as candidates.
    """

    chosen: Tensor
    kept: Tensor | None
    temperature: float | Tensor
    names: frozenset[str]
    candidates: Tensor | None
    top: int


def query_at(
    experience: Experience, row: Tensor, column: Tensor, *, names: frozenset[str], named: bool, top: int
) -> Query:
    """Builds the query for the decisions at (row, column) of a batch.

    named: whether the batch contains the candidates.

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


def layers_in(extras: Iterable[str]) -> dict[Layer, set[LayerOutput]]:
    """Returns the requested outputs of each layer."""
    found: dict[Layer, set[LayerOutput]] = {}
    for output, layer in filter(None, map(layer_of, extras)):
        found.setdefault(layer, set()).add(output)
    return found


def begun(experience: Experience) -> Tensor:
    """Marks the decisions [B, T], and earlier ones that a selection has left out, as far as `turn` contains them.

    A row's prompt ends before all of them, and rows share prompts only.
    """
    if experience.turn is None:
        return experience.mask
    return experience.mask | ((experience.turn >= 0) & (experience.turn[:, :1] < 0))


def from_column_0(tokens: Tensor, columns: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Moves padding from the left of tokens [B, T] to the right; returns tokens, matching columns, and each row's
    shift."""
    real = tokens >= 0
    first = torch.where(real.any(1), real.int().argmax(1), 0)
    if not first.any():
        return tokens, columns, first
    source = torch.arange(tokens.shape[1], device=tokens.device) + first[:, None]
    inside = source < tokens.shape[1]
    moved = torch.where(inside, tokens.gather(1, source.clamp(max=tokens.shape[1] - 1)), -1)
    return moved, columns - first[rows], first


def positions_read(mask: Tensor, row: Tensor, column: Tensor, *, final: bool) -> tuple[Tensor, Tensor]:
    """Returns rows and columns of the hidden states from which the decisions at (row, column) are predicted: at t - 1
    for t.

    final: append the positions of each row's last decision, whose value is the final one.
    """
    if not final:
        return row, column - 1
    all_rows = torch.arange(len(mask), device=mask.device)
    last = torch.where(mask, torch.arange(mask.shape[1], device=mask.device), 0).amax(1)
    return torch.cat([row, all_rows]), torch.cat([column - 1, last])


def by_position(outputs: dict[str, Tensor], mask: Tensor, row: Tensor, column: Tensor) -> dict[str, Any]:
    """Returns the fields of an `Evaluation`, [B, T, ...] each, from outputs [N, ...] of the decisions at (row, column);
    other positions hold 0 (ids: -1)."""

    def spread(values: Tensor, blank: int = 0) -> Tensor:
        return values.new_full((*mask.shape, *values.shape[1:]), blank).index_put((row, column), values)

    fields = {name: spread(outputs[name]) for name in OUTPUTS if name in outputs}
    more = {name: spread(v, -1 if name == "candidates" else 0) for name, v in outputs.items() if name not in OUTPUTS}
    return {**fields, "extras": more}
