"""Fields of several batches stacked into one, the rows of one field, and rows cut into runs of whole groups."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.fields import SHAPES, ExperienceError


def take(value: Any, rows: Any) -> Any:
    """Selects the entries of a tensor or list at `rows`: a slice, a bool mask [B] or positions [M]."""
    if isinstance(value, Tensor):
        return value[rows]
    if isinstance(rows, slice):
        return value[rows]
    index = rows.nonzero().flatten() if rows.dtype == torch.bool else rows
    return [value[i] for i in index.tolist()]


def whole_groups(rows: Tensor, group: Tensor, most: int) -> list[Tensor]:
    """Cuts rows [M] of these groups [M] into runs of whole groups, of at most `most` rows unless one group has more.

    Groups come in the order of their first rows, the rows of a run in the order given.
    """
    members: dict[int, list[int]] = {}
    for place, number in enumerate(group.tolist()):
        members.setdefault(number, []).append(place)
    runs: list[list[int]] = []
    for places in members.values():
        if runs and len(runs[-1]) + len(places) <= most:
            runs[-1] += places
        else:
            runs.append(list(places))
    return [rows[torch.tensor(sorted(run), device=rows.device)] for run in runs]


def stacked_fields(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stacks the tensor fields of several batches, each a mapping of name to tensor or None.

    Rows are padded to the longest T: integers with -1, the rest with 0. `group` numbers of different batches are kept
    apart.

    Raises:
        ExperienceError: a field is there in some batches and not in others, or not of the same rank.
    """
    fields: dict[str, Any] = {}
    for name in SHAPES:
        values = [batch[name] for batch in batches]
        missing = [v is None for v in values]
        if all(missing):
            continue
        if any(missing):
            raise ExperienceError(f"Experience.cat: field {name!r} is missing in batch {missing.index(True)}")
        if len({v.ndim for v in values}) > 1:
            shapes = " and ".join(str(list(v.shape)) for v in values)
            raise ExperienceError(f"Experience.cat: field {name!r} must have one kind of shape, found {shapes}")
        fields[name] = _stack(_distinct_groups(values) if name == "group" else values)
    return fields


def stacked_extras(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stacks the `extras` of several batches: tensors as `stacked_fields`, lists end to end.

    Raises:
        ExperienceError: a name is there in some batches and not in others.
    """
    first = batches[0]
    for batch in batches:
        for name in first.keys() ^ batch.keys():
            raise ExperienceError(f"Experience.cat: extras[{name!r}] is in some batches and not in others")
    extras: dict[str, Any] = {}
    for name in first:
        values = [batch[name] for batch in batches]
        extras[name] = _stack(values) if isinstance(values[0], Tensor) else list(itertools.chain(*values))
    return extras


def _distinct_groups(groups: list[Tensor]) -> list[Tensor]:
    shifted, start = [], 0
    for group in groups:
        if group.numel():
            group = group + (start - int(group.min().clamp(max=0)))
            start = int(group.max()) + 1
        shifted.append(group)
    return shifted


def _stack(values: list[Tensor]) -> Tensor:
    size = [max(v.shape[d] for v in values) for d in range(values[0].ndim)]
    padded = []
    for value in values:
        pad: list[int] = []
        for d in range(value.ndim - 1, 0, -1):
            pad += [0, size[d] - value.shape[d]]
        blank = 0 if value.is_floating_point() or value.dtype == torch.bool else -1
        padded.append(F.pad(value, pad, value=blank) if any(pad) else value)
    return torch.cat(padded)
