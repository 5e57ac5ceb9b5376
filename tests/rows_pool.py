"""Rows of the battery: what chooses among rows that somebody marked."""

from __future__ import annotations

import dataclasses

import torch
from batches import Batch, random_batch
from battery import Row

from polopt.sampling import Marked


def marked_batch(seed: int = 0, clean: bool = False) -> Batch:
    """A random batch of which some rows are marked."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    chosen = torch.rand(len(batch.mask), generator=g) < 0.6
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"chosen": chosen}))


SELECTS = {"marked": Row(Marked(), batch=marked_batch)}
