"""Rows of the battery: parts for batches that hold demonstrations, and what PPO-max adds to PPO."""

from __future__ import annotations

import torch
from batches import VOCABULARY, Batch, random_batch
from battery import Row

from polopt.credit import GAE, Relative
from polopt.credit import Clipped as ClippedCredit
from polopt.objectives import (
    Clip,
    Demonstrated,
    EntropyTarget,
    Likely,
    OneToken,
    Route,
    Routed,
    Score,
    SequenceMean,
    SequenceSum,
    Shaped,
    Surrogate,
    Undecided,
)
from polopt.rewards import Clipped, Outcome, Overlong, Scaled, Sum
from polopt.sampling import Replaced


def shown(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> Batch:
    """Every third row was decided by somebody else."""
    batch = random_batch(seed, B, T, clean)
    mark = {"demonstrated": torch.arange(B) % 3 == 1}
    return Batch(batch.experience.replace(extras=mark), batch.leaves)


def spoken(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> Batch:
    """With tokens on the decisions and padding around them."""
    batch = random_batch(seed, B, T, clean)
    tokens = torch.randint(0, VOCABULARY, (B, T), generator=torch.Generator().manual_seed(seed))
    return Batch(batch.experience.replace(extras={"tokens": torch.where(batch.mask, tokens, -1)}), batch.leaves)


SFT = Route(objective=Surrogate(ratio=None, trust=Score()), rows=Demonstrated(), weight=0.3)

OBJECTIVES = {
    "likely": Row(Surrogate(ratio=None, trust=Score(), weights=[Likely()]), honest=None),
    "undecided": Row(Surrogate(ratio=None, trust=Score(), weights=[Undecided()]), honest=None),
    "shaped": Row(Surrogate(trust=Shaped(bend=0.3))),
    "entropy target": Row(Surrogate(regularise=[EntropyTarget(coefficient=0.7, target=0.3)])),
    "entropy target from below": Row(Surrogate(regularise=[EntropyTarget(target=9.0)])),
    "demonstrated": Row(
        Routed(routes=[Route(objective=Surrogate(), rows=Demonstrated(invert=True)), SFT]), batch=shown
    ),
    "demonstrated, sums": Row(
        Routed(
            routes=[
                Route(objective=Surrogate(trust=Clip(), aggregate=SequenceSum()), rows=Demonstrated(invert=True)),
                SFT.but({"objective.aggregate": SequenceSum(length=3)}),
                SFT.but({"objective.aggregate": SequenceMean()}),
            ]
        ),
        batch=shown,
    ),
    "entropy target of rollouts": Row(
        Routed(
            routes=[
                Route(objective=Surrogate(regularise=[EntropyTarget(target=0.8)]), rows=Demonstrated(invert=True)),
                SFT,
            ]
        ),
        batch=shown,
    ),
    "one token": Row(
        Surrogate(ratio=None, trust=OneToken(temperature=1.3, miss=-0.1, floor=-2.0)), honest=None, batch=spoken
    ),
    "one token, drawn": Row(
        Surrogate(ratio=None, trust=OneToken(draws=7, temperature=0.8, miss=-0.1)), honest=None, batch=spoken
    ),
}

CREDITS = {
    "clipped": Row(ClippedCredit(credit=Relative(), limit=0.5), relative=True),
    "clipped gae": Row(ClippedCredit(credit=GAE(), limit=0.1)),
}

REWARDS = {
    "scaled": Row(Scaled()),
    "centred": Row(Scaled(reward=Sum(terms=[Outcome(), Overlong(limit=4)]), centred=True)),
    "clipped": Row(Clipped(reward=Outcome(scale=3.0, shift=-1.0), limit=0.5)),
}

SELECTS = {"replaced": Row(Replaced(), batch=shown)}
