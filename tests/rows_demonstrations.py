"""Rows of the battery: parts for batches that hold demonstrations, and what PPO-max adds to PPO."""

from __future__ import annotations

import torch
from batches import VOCABULARY, SampleBatch, random_batch
from battery import PartRow

from polopt.credit import GAE, RelativeAdvantage
from polopt.credit import ClippedAdvantage as ClippedCredit
from polopt.features.masks import IsDemonstration
from polopt.methods.chord import UncertaintyWeight
from polopt.methods.otr import OneToken
from polopt.methods.unified_hpt import ReplacedBySolutions
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    EntropyTarget,
    PolicyGradient,
    ProbabilityWeight,
    SaturatedRatio,
    SequenceMean,
    SequenceSum,
    Surrogate,
)
from polopt.rewards import ClippedReward, OutcomeReward, OverlongPenalty, ScaledReward, SumOfRewards


def shown(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """Every third row was decided by somebody else."""
    batch = random_batch(seed, B, T, clean)
    mark = {"is_demonstration": torch.arange(B) % 3 == 1}
    return SampleBatch(batch.experience.replace(extras=mark), batch.leaves)


def spoken(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """With tokens on the decisions and padding around them."""
    batch = random_batch(seed, B, T, clean)
    tokens = torch.randint(0, VOCABULARY, (B, T), generator=torch.Generator().manual_seed(seed))
    return SampleBatch(batch.experience.replace(extras={"tokens": torch.where(batch.mask, tokens, -1)}), batch.leaves)


SFT = Branch(objective=Surrogate(ratio=None, trust=PolicyGradient()), rows=IsDemonstration(), weight=0.3)

OBJECTIVES = {
    "likely": PartRow(Surrogate(ratio=None, trust=PolicyGradient(), weights=[ProbabilityWeight()]), honest=None),
    "undecided": PartRow(Surrogate(ratio=None, trust=PolicyGradient(), weights=[UncertaintyWeight()]), honest=None),
    "shaped": PartRow(Surrogate(trust=SaturatedRatio(bend=0.3))),
    "entropy target": PartRow(Surrogate(regularise=[EntropyTarget(coefficient=0.7, target=0.3)])),
    "entropy target from below": PartRow(Surrogate(regularise=[EntropyTarget(target=9.0)])),
    "is_demonstration": PartRow(
        BranchedObjective(routes=[Branch(objective=Surrogate(), rows=IsDemonstration(invert=True)), SFT]), batch=shown
    ),
    "demonstrated, sums": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(trust=Clip(), aggregate=SequenceSum()), rows=IsDemonstration(invert=True)),
                SFT.but({"objective.aggregate": SequenceSum(length=3)}),
                SFT.but({"objective.aggregate": SequenceMean()}),
            ]
        ),
        batch=shown,
    ),
    "entropy target of rollouts": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(regularise=[EntropyTarget(target=0.8)]), rows=IsDemonstration(invert=True)),
                SFT,
            ]
        ),
        batch=shown,
    ),
    "one token": PartRow(
        Surrogate(ratio=None, trust=OneToken(temperature=1.3, miss=-0.1, floor=-2.0)), honest=None, batch=spoken
    ),
    "one token, drawn": PartRow(
        Surrogate(ratio=None, trust=OneToken(draws=7, temperature=0.8, miss=-0.1)), honest=None, batch=spoken
    ),
}

CREDITS = {
    "clipped": PartRow(ClippedCredit(credit=RelativeAdvantage(), limit=0.5), relative=True),
    "clipped gae": PartRow(ClippedCredit(credit=GAE(), limit=0.1)),
}

REWARDS = {
    "scaled": PartRow(ScaledReward()),
    "centred": PartRow(
        ScaledReward(reward=SumOfRewards(terms=[OutcomeReward(), OverlongPenalty(limit=4)]), centred=True)
    ),
    "clipped": PartRow(ClippedReward(reward=OutcomeReward(scale=3.0, shift=-1.0), limit=0.5)),
}

SELECTS = {"replaced": PartRow(ReplacedBySolutions(), batch=shown)}
