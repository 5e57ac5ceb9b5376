"""Rows of the battery: parts for batches of several ages, of cut rows and of unfinished ones."""

from __future__ import annotations

import dataclasses

import torch
from batches import Batch, poisoned, random_batch
from battery import Row

from polopt.credit import GAE, BetweenCuts
from polopt.objectives import (
    Auxiliary,
    CentredClip,
    Ended,
    Entropy,
    Marked,
    ReferenceKL,
    Route,
    Routed,
    Sequence,
    SequenceMean,
    Surrogate,
    Token,
    ValueLoss,
)
from polopt.sampling import InDoubt, NonZero
from polopt.schedules import Schedule


def cut_batch(seed: int = 0, clean: bool = False) -> Batch:
    """A random batch with cuts, some of them where nobody may look."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    cut, value = torch.rand(batch.mask.shape, generator=g) < 0.4, torch.randn(batch.mask.shape, generator=g).double()
    extras = {"cut": cut, "cut_value": value if clean else poisoned(value, batch.mask)}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def window_batch(seed: int = 0, clean: bool = False) -> Batch:
    """A random batch of which some decisions are marked, some of them where nobody may look."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    extras = {"window": torch.rand(batch.mask.shape, generator=g) < 0.6}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


CRITIC = ValueLoss(target=GAE(lam=1.0, cut="zero"), clip=None)

OBJECTIVES = {
    "auxiliary": Row(Auxiliary(regularise=[CRITIC, Entropy(coefficient=0.3)], aggregate=SequenceMean())),
    "by decision": Row(
        Routed(
            routes=[
                Route(objective=Surrogate(), rows=Marked(name="window")),
                Route(objective=Auxiliary(regularise=[CRITIC]), rows=Ended()),
                Route(objective=Surrogate(), rows=Ended(invert=True), weight=0.5),
            ]
        ),
        batch=window_batch,
    ),
    "centred clip": Row(Surrogate(trust=CentredClip())),
    "centred clip of sequences": Row(
        Surrogate(ratio=Sequence(), trust=CentredClip(low=0.01, high=0.02, centre=Sequence()))
    ),
    "two anchors": Row(
        Surrogate(
            trust=CentredClip(),
            regularise=[
                ReferenceKL(coefficient=Schedule(knots=[(0, 0.5), (2, 0.1)]), gradient="k2", value="k2"),
                ReferenceKL(anchor="previous"),
            ],
        )
    ),
    "previous, weighed": Row(Surrogate(regularise=[ReferenceKL(anchor="previous", ratio=Token())]), honest=None),
}

CREDITS = {
    "between cuts": Row(BetweenCuts(), batch=cut_batch),
    "extended gae": Row(GAE(lam=0.8, open="last")),
    "extended gae, limits as ends": Row(GAE(gamma=0.9, cut="zero", open="last")),
}

SELECTS = {
    "in doubt": Row(InDoubt(threshold=0.3), keeps="decisions"),
    "non-zero": Row(NonZero()),
}
