"""The smallest batch on which a check still fails: fewest rows and columns, simplest numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from polopt.checks.sample_batches import SampleBatch
from polopt.fields import SHAPES

Fails = Callable[[SampleBatch], bool]

# Numbers from simple to less simple: none positive for log-probabilities, no 0 for advantages.
SIMPLE = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
LOGS = (-1.0, -2.0, -0.5, 0.0)
SIGNED = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
FIRST = {"logp": LOGS, "rollout_logp": LOGS, "old_logp": LOGS, "ref_logp": LOGS, "advantage": SIGNED}
ROUNDS = 4


def smallest(batch: SampleBatch, fails: Fails) -> SampleBatch:
    """Returns a failing batch from which nothing more can be left out or simplified. `batch` itself must fail."""
    for _ in range(ROUNDS):
        before = batch
        for step in (_fewer_rows, _fewer_columns, _fewer_fields, _simpler_mask, _simpler_numbers):
            batch = step(batch, fails)
        if batch is before:
            break
    return batch


def _keep(batch: SampleBatch, smaller: SampleBatch, fails: Fails) -> SampleBatch:
    """Returns the smaller batch if it still fails and holds a decision, else `batch`."""
    return smaller if smaller.mask.any() and fails(smaller) else batch


def _fewer(
    batch: SampleBatch,
    size: Callable[[SampleBatch], int],
    without: Callable[[SampleBatch, Tensor], SampleBatch],
    fails: Fails,
) -> SampleBatch:
    """Leaves out halves, quarters, ... and single ones, while the batch still fails."""
    step = size(batch) // 2
    while step:
        start = 0
        while start < size(batch) > 1:
            keep = torch.tensor([i for i in range(size(batch)) if not start <= i < start + step], dtype=torch.long)
            shorter = _keep(batch, without(batch, keep), fails) if len(keep) else batch
            start += step if shorter is batch else 0
            batch = shorter
        step //= 2
    return batch


def _fewer_rows(batch: SampleBatch, fails: Fails) -> SampleBatch:
    return _fewer(batch, lambda b: len(b.mask), _numbered, fails)


def _numbered(batch: SampleBatch, keep: Tensor) -> SampleBatch:
    """Selects some of the rows; the extra "row" is renumbered."""
    batch = batch.rows(keep)
    return batch.replace(extras={"row": torch.arange(len(keep))}) if "row" in batch.experience.extras else batch


def _fewer_columns(batch: SampleBatch, fails: Fails) -> SampleBatch:
    return _fewer(batch, lambda b: b.mask.shape[1], columns, fails)


def columns(batch: SampleBatch, keep: Tensor) -> SampleBatch:
    """Selects some of the columns."""
    T, old = batch.mask.shape[1], batch.experience

    def cut(x: Any) -> Any:
        return x[:, keep] if isinstance(x, Tensor) and x.ndim > 1 and x.shape[1] == T else x

    fields = {n: cut(v) for n in SHAPES if (v := getattr(old, n)) is not None}
    extras = {k: cut(v) for k, v in old.extras.items()}
    leaves = {k: v.detach()[:, keep].requires_grad_() for k, v in batch.leaves.items()}
    return dataclasses.replace(batch, experience=dataclasses.replace(old, extras=extras, **fields), leaves=leaves)


def _fewer_fields(batch: SampleBatch, fails: Fails) -> SampleBatch:
    """Drops fields, extras and leaves that the failure does not depend on."""
    old = batch.experience
    for name in [n for n in (*SHAPES, "horizon") if n != "mask" and getattr(old, n) is not None]:
        batch = _keep(batch, batch.replace(**{name: None}), fails)
    for name in old.extras:
        extras = {k: v for k, v in batch.experience.extras.items() if k != name}
        bare = dataclasses.replace(batch.experience, extras=extras)
        batch = _keep(batch, dataclasses.replace(batch, experience=bare), fails)
    for name in [n for n in batch.leaves if n != "logp"]:
        leaves = {k: v for k, v in batch.leaves.items() if k != name}
        batch = _keep(batch, dataclasses.replace(batch, leaves=leaves), fails)
    return batch


def _simpler_mask(batch: SampleBatch, fails: Fails) -> SampleBatch:
    everywhere = torch.ones_like(batch.mask)
    if not batch.mask.all():
        batch = _keep(batch, batch.replace(mask=everywhere), fails)
    for row, column in (~batch.mask).nonzero().tolist():
        mask = batch.mask.clone()
        mask[row, column] = True
        batch = _keep(batch, batch.replace(mask=mask), fails)
    return batch


def _simpler_numbers(batch: SampleBatch, fails: Fails) -> SampleBatch:
    """Makes each tensor constant if the batch still fails, else each of its numbers as simple as possible."""
    for slot in _slots(batch):
        for simpler in _candidates(slot.read(batch), slot.name):
            found = _keep(batch, slot.write(batch, simpler), fails)
            if found is not batch:
                batch = found
                break
        else:
            batch = _each(batch, slot, fails)
    return batch


@dataclasses.dataclass(frozen=True)
class _Slot:
    """A tensor of a batch: a field of the experience, one of its extras, or a leaf."""

    kind: str
    name: str

    def read(self, batch: SampleBatch) -> Tensor:
        if self.kind == "leaf":
            return batch.leaves[self.name].detach()
        return batch.experience.extras[self.name] if self.kind == "extra" else getattr(batch.experience, self.name)

    def write(self, batch: SampleBatch, value: Tensor) -> SampleBatch:
        if self.kind == "leaf":
            return dataclasses.replace(batch, leaves={**batch.leaves, self.name: value.clone().requires_grad_()})
        return batch.replace(**({"extras": {self.name: value}} if self.kind == "extra" else {self.name: value}))


def _slots(batch: SampleBatch) -> list[_Slot]:
    old = batch.experience
    fields = [_Slot("field", n) for n in SHAPES if n != "mask" and getattr(old, n) is not None]
    extras = [_Slot("extra", k) for k, v in old.extras.items() if isinstance(v, Tensor) and k != "row"]
    return [*fields, *extras, *(_Slot("leaf", name) for name in batch.leaves)]


def _each(batch: SampleBatch, slot: _Slot, fails: Fails) -> SampleBatch:
    """Simplifies the numbers of one tensor one by one."""
    if not slot.read(batch).is_floating_point():
        return batch
    for place in torch.ones_like(slot.read(batch)).nonzero().tolist():
        for number in _simpler(float(slot.read(batch)[tuple(place)]), slot.name):
            changed = slot.read(batch).clone()
            changed[tuple(place)] = number
            found = _keep(batch, slot.write(batch, changed), fails)
            if found is not batch:
                batch = found
                break
    return batch


def _candidates(x: Tensor, name: str) -> Iterator[Tensor]:
    """Yields tensors with one number everywhere, simplest first, as long as they are simpler than x."""
    if x.is_floating_point():
        hardest = max((_effort(float(v), name) for v in x.flatten()), default=0)
        alike = bool(x.numel()) and bool((x == x.flatten()[0]).all())
        for number in FIRST.get(name, SIMPLE):
            if _effort(number, name) < hardest or (_effort(number, name) == hardest and not alike):
                yield torch.full_like(x, number)
    elif x.dtype == torch.bool:
        if not x.all():
            yield torch.ones_like(x)
    else:
        _, index = torch.unique(x, return_inverse=True)
        for simpler in (torch.zeros_like(x), index.to(x.dtype)):
            if not torch.equal(simpler, x):
                yield simpler


def _simpler(number: float, name: str) -> Iterator[float]:
    rounded = [round(number, digits) for digits in (0, 1, 2)] if math.isfinite(number) else []
    for candidate in (*FIRST.get(name, SIMPLE), *rounded):
        if _effort(candidate, name) < _effort(number, name):
            yield candidate


def _effort(number: float, name: str) -> int:
    """Returns the complexity of a number for a reader: its rank among the simple ones, else its count of characters."""
    simple = FIRST.get(name, SIMPLE)
    return simple.index(number) if number in simple else len(SIMPLE) + len(repr(number))
