"""Rows of the battery: parts for groups that get help: a known solution, a bent reward, what was put into a row."""

from __future__ import annotations

import functools

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow
from rows_demonstrations import shown

from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.features.groupings import SameTask
from polopt.methods.rex_rag import MixtureRatio
from polopt.methods.tempsamp_r1 import (
    AnchoredDemonstrations,
    BentReward,
    DiscountedDemonstrations,
    IncludeDemonstrations,
    RatioExceptDemonstrations,
)
from polopt.objectives import Clip, SequenceMean, Surrogate, TokenRatio, Unclipped
from polopt.ops import NOTHING
from polopt.rewards import OutcomeReward


def probed(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """A third of the rows were interfered with at their first decisions; others would never be by that probe."""
    batch, g = random_batch(seed, B, T, clean), torch.Generator().manual_seed(100 + seed)
    probe = torch.arange(B) % 3 == 0
    said = -0.1 - 2 * torch.randn(B, T, generator=g, dtype=torch.float64).abs()
    put_in = batch.mask & (batch.mask.cumsum(1) <= 2)
    theirs = torch.where(probe[:, None], torch.where(put_in, -0.7, said), NOTHING)
    extras = {"policy_logp": said, "probe_logp": theirs}
    if not clean:
        extras = {name: poisoned(value, batch.mask) for name, value in extras.items()}
    return batch.replace(extras={"probe": probe, **extras})


def indexed(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """Groups 7 and 3 are of one task."""
    batch = random_batch(seed, B, T, clean)
    return batch.replace(extras={"index": batch.experience.group % 4})


mixed = functools.partial(PartRow, batch=probed)
beside = functools.partial(PartRow, batch=shown)

OBJECTIVES = {
    "unsampled": beside(Surrogate(ratio=RatioExceptDemonstrations(ratio=TokenRatio()), trust=Unclipped()), honest=None),
    "unsampled, clipped": beside(Surrogate(ratio=RatioExceptDemonstrations(), trust=Clip()), honest=None),
    "mixture": mixed(Surrogate(ratio=MixtureRatio(), trust=Unclipped())),
    "mixture of rows": mixed(Surrogate(ratio=MixtureRatio(unit="row"), trust=Clip(), aggregate=SequenceMean())),
    "mixture, share given": mixed(Surrogate(ratio=MixtureRatio(share=0.2), trust=Clip())),
}

CREDITS = {
    "together": beside(IncludeDemonstrations(credit=RelativeAdvantage()), relative=True),
    "within a task": PartRow(
        RelativeAdvantage(baseline=GroupMean(within=SameTask()), scale=GroupStd(within=SameTask())),
        relative=True,
        batch=indexed,
    ),
    "anchored": beside(AnchoredDemonstrations(), relative=True),
    "anchored, centred": beside(
        AnchoredDemonstrations(credit=RelativeAdvantage(baseline=GroupMean(), scale=None), factor=0.5), relative=True
    ),
}

REWARDS = {
    "shaped": PartRow(BentReward()),
    "shaped, of another": PartRow(BentReward(reward=OutcomeReward(scale=0.5), knee=0.3, above=0.1, below=2.0)),
    "discounted": beside(DiscountedDemonstrations(factor=0.5)),
}
