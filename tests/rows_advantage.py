"""Rows of the battery: parts that shape the advantage."""

from __future__ import annotations

from batches import outcome_batch
from battery import PartRow

from polopt.credit import RelativeAdvantage, WeightedAdvantage, WeightedSum
from polopt.features.groupings import SameKind, SamePrompt
from polopt.features.masks import TaskKindIs
from polopt.features.rows import AnswerEntropy, DecisionCount, Logistic, MeanEntropy, SuccessRate
from polopt.methods.bnpo import BetaScale
from polopt.methods.canon import HalfGroupAdvantage
from polopt.methods.copo import AcrossGroups, MultiAdvantage, PerAdvantageSurrogate
from polopt.methods.g2rpo import EntropyBand, NormalScores
from polopt.methods.rlcm_scaling import LengthEnvelope
from polopt.objectives import Clip, SequenceMean, Surrogate
from polopt.rewards import ConditionalReward
from polopt.schedules import Schedule

AGREEMENT = Logistic(of=AnswerEntropy(base=2.718281828), slope=5.0, centre=0.4)

OBJECTIVES = {
    "each voice": PartRow(
        Surrogate(trust=PerAdvantageSurrogate(trust=Clip(low=0.1, high=0.2, dual=1.5)), aggregate=SequenceMean())
    ),
    "entropy band": PartRow(Surrogate(regularise=[EntropyBand(of="exact", low=0.7, high=0.8, coefficient=2.0)])),
    "sampled entropy band": PartRow(
        Surrogate(regularise=[EntropyBand(low=1.6, high=1.7, coefficient=2.0, kinds=("a",))])
    ),
}

CREDITS = {
    "beta": PartRow(RelativeAdvantage(scale=BetaScale(low=-20.0, high=1010.0)), relative=True),
    "beta of outcomes": PartRow(
        RelativeAdvantage(scale=BetaScale(low=-20.0, high=1010.0, shape=(1.5, 3.0))), relative=True
    ),
    "halves by length": PartRow(
        HalfGroupAdvantage(by=DecisionCount(), mu=Schedule(knots=[(0, 1.0), (2, 0.0)])), relative=True
    ),
    "halves by entropy": PartRow(
        HalfGroupAdvantage(by=MeanEntropy(), mu=SuccessRate(invert=True), upper=1.0, lower=0.8)
    ),
    "ranks": PartRow(NormalScores(), relative=True),
    "ranks of ranks": PartRow(NormalScores(within=[SamePrompt(), SameKind()]), relative=True),
    "across prompts": PartRow(AcrossGroups(), relative=True),
    "weighed by row": PartRow(WeightedSum(shares=[WeightedAdvantage(credit=RelativeAdvantage(), weight=AGREEMENT)])),
    "advantages": PartRow(
        MultiAdvantage(
            shares=[
                WeightedAdvantage(credit=RelativeAdvantage(), weight=AGREEMENT),
                WeightedAdvantage(credit=AcrossGroups(), weight=0.5),
            ]
        ),
        relative=True,
    ),
}

REWARDS = {
    "envelope": PartRow(LengthEnvelope(least=0, low=2, high=4, most=7)),
    "envelope of a kind": PartRow(
        ConditionalReward(reward=LengthEnvelope(least=0, low=2, high=4, most=7), when=TaskKindIs(kinds=("b",)))
    ),
}

BATCHES = {"bnpo": outcome_batch}
