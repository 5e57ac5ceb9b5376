"""Rows of the battery: what chooses among rows that somebody marked."""

from __future__ import annotations

import dataclasses

import torch
from batches import SampleBatch, random_batch
from battery import PartRow

from polopt.experience import Experience
from polopt.methods.econprover import ShortestCorrect
from polopt.methods.rorecomp import SelectByField


def marked_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of which some rows are marked."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    chosen = torch.rand(len(batch.mask), generator=g) < 0.6
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"chosen": chosen}))


def who(e: Experience) -> list[tuple[int, int]]:
    """Group and length: of equally short rows the earlier one is kept."""
    return sorted(zip(e.group.tolist(), e.lengths.tolist(), strict=True))


SELECTS = {
    "marked": PartRow(SelectByField(), batch=marked_batch),
    "cheapest": PartRow(ShortestCorrect(right=0.0), key=who),
    "two cheapest": PartRow(ShortestCorrect(count=2, right=-1.0), key=who),
}
