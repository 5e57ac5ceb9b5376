"""Rows of the battery: parts that shape the advantage."""

from __future__ import annotations

from batches import outcome_batch
from battery import Row

from polopt.credit import (
    AcrossGroups,
    AnswerEntropy,
    BetaScale,
    Blend,
    Halves,
    Kind,
    Length,
    Logistic,
    MeanEntropy,
    NormalScores,
    Prompt,
    Relative,
    Share,
    SuccessRate,
    Voices,
)
from polopt.objectives import Clip, EachVoice, EntropyBand, SequenceMean, Surrogate
from polopt.rewards import Envelope, Gated, OfKind
from polopt.schedules import Schedule

AGREEMENT = Logistic(of=AnswerEntropy(base=2.718281828), slope=5.0, centre=0.4)

OBJECTIVES = {
    "each voice": Row(Surrogate(trust=EachVoice(trust=Clip(low=0.1, high=0.2, dual=1.5)), aggregate=SequenceMean())),
    "entropy band": Row(Surrogate(regularise=[EntropyBand(of="exact", low=0.7, high=0.8, coefficient=2.0)])),
    "sampled entropy band": Row(Surrogate(regularise=[EntropyBand(low=1.6, high=1.7, coefficient=2.0, kinds=("a",))])),
}

CREDITS = {
    "beta": Row(Relative(scale=BetaScale(low=-20.0, high=1010.0)), relative=True),
    "beta of outcomes": Row(Relative(scale=BetaScale(low=-20.0, high=1010.0, shape=(1.5, 3.0))), relative=True),
    "halves by length": Row(Halves(by=Length(), mu=Schedule(knots=[(0, 1.0), (2, 0.0)])), relative=True),
    "halves by entropy": Row(Halves(by=MeanEntropy(), mu=SuccessRate(invert=True), upper=1.0, lower=0.8)),
    "ranks": Row(NormalScores(), relative=True),
    "ranks of ranks": Row(NormalScores(within=[Prompt(), Kind()]), relative=True),
    "across prompts": Row(AcrossGroups(), relative=True),
    "weighed by row": Row(Blend(shares=[Share(credit=Relative(), weight=AGREEMENT)])),
    "voices": Row(
        Voices(shares=[Share(credit=Relative(), weight=AGREEMENT), Share(credit=AcrossGroups(), weight=0.5)]),
        relative=True,
    ),
}

REWARDS = {
    "envelope": Row(Envelope(least=0, low=2, high=4, most=7)),
    "envelope of a kind": Row(Gated(reward=Envelope(least=0, low=2, high=4, most=7), when=OfKind(kinds=("b",)))),
}

BATCHES = {"bnpo": outcome_batch}
