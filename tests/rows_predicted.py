"""Rows of the battery: parts that read what was predicted of a row's task."""

from __future__ import annotations

import torch
from batches import SampleBatch, random_batch
from battery import PartRow

from polopt.credit import RelativeAdvantage
from polopt.features.rows import RowField
from polopt.methods.v0_5 import ShrunkMean


def predicted_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with a success rate that was predicted of each row's group."""
    batch = random_batch(seed, clean=clean)
    rates = torch.rand(1000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return batch.replace(extras={"predicted": rates[batch.experience.group]})


PRIOR = RowField(name="predicted")

CREDITS = {
    "shrunk": PartRow(
        RelativeAdvantage(baseline=ShrunkMean(prior=PRIOR, low=-20.0, high=1010.0), scale=None), batch=predicted_batch
    ),
    "shrunk, others": PartRow(
        RelativeAdvantage(baseline=ShrunkMean(prior=PRIOR, low=-20.0, high=1010.0, others=True), scale=None),
        batch=predicted_batch,
    ),
    "half of each": PartRow(
        RelativeAdvantage(baseline=ShrunkMean(prior=PRIOR, low=-20.0, high=1010.0, weight=0.5), scale=None),
        batch=predicted_batch,
    ),
}
