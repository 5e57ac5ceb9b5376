"""Rows of the battery: parts for batches of several ages, of cut rows and of unfinished ones."""

from __future__ import annotations

import dataclasses

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow

from polopt.credit import GAE
from polopt.features.masks import FieldMask, Finished
from polopt.methods.remix import CentredClip
from polopt.methods.spo import SegmentAdvantage
from polopt.objectives import (
    AuxiliaryLoss,
    Branch,
    BranchedObjective,
    EntropyBonus,
    ReferenceKL,
    SequenceMean,
    SequenceRatio,
    Surrogate,
    TokenRatio,
    ValueLoss,
)
from polopt.sampling import NonZeroAdvantage, UncertainTokens
from polopt.schedules import Schedule


def cut_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with cuts, some of them where nobody may look."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    cut, value = torch.rand(batch.mask.shape, generator=g) < 0.4, torch.randn(batch.mask.shape, generator=g).double()
    extras = {"cut": cut, "cut_value": value if clean else poisoned(value, batch.mask)}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def window_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of which some decisions are marked, some of them where nobody may look."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    extras = {"window": torch.rand(batch.mask.shape, generator=g) < 0.6}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


CRITIC = ValueLoss(clip=None)

OBJECTIVES = {
    "auxiliary": PartRow(AuxiliaryLoss(regularise=[CRITIC, EntropyBonus(coefficient=0.3)], aggregate=SequenceMean())),
    "by decision": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(), rows=FieldMask(name="window", unit="token")),
                Branch(objective=AuxiliaryLoss(regularise=[CRITIC]), rows=Finished()),
                Branch(objective=Surrogate(), rows=Finished(invert=True), weight=0.5),
            ]
        ),
        batch=window_batch,
    ),
    "centred clip": PartRow(Surrogate(trust=CentredClip())),
    "centred clip of sequences": PartRow(
        Surrogate(ratio=SequenceRatio(), trust=CentredClip(low=0.01, high=0.02, centre=SequenceRatio()))
    ),
    "two anchors": PartRow(
        Surrogate(
            trust=CentredClip(),
            regularise=[
                ReferenceKL(coefficient=Schedule(knots=[(0, 0.5), (2, 0.1)]), gradient="k2", value="k2"),
                ReferenceKL(anchor="previous"),
            ],
        )
    ),
    "previous, weighed": PartRow(
        Surrogate(regularise=[ReferenceKL(anchor="previous", ratio=TokenRatio())]), honest=None
    ),
}

CREDITS = {
    "between cuts": PartRow(SegmentAdvantage(), batch=cut_batch),
    "extended gae": PartRow(GAE(lam=0.8, open="last")),
    "extended gae, limits as ends": PartRow(GAE(gamma=0.9, cut="zero", open="last")),
}

SELECTS = {
    "in doubt": PartRow(UncertainTokens(threshold=0.3), keeps="decisions"),
    "non-zero": PartRow(NonZeroAdvantage()),
}
