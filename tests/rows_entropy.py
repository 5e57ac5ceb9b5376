"""Rows of the battery: parts that watch the policy's entropy."""

from __future__ import annotations

from battery import Row

from polopt.credit import Bounded, Everyone, GroupMean, GroupStd, Relative
from polopt.objectives import (
    ClipCov,
    EntropyAdvantage,
    EntropyClip,
    EntropyLevel,
    KLCov,
    SequenceMean,
    SteadyEntropy,
    Surrogate,
    Token,
    Unlimited,
)

BY_TOKEN = Relative(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))

# Weights stop their gradient, but move with what a finite difference nudges: no honest twin.
OBJECTIVES = {
    "clip-cov": Row(Surrogate(trust=ClipCov(share=0.2, least=0.2, most=9.0, low=0.3, high=0.3))),
    "clip-cov, one decision": Row(Surrogate(trust=ClipCov(least=0.0, seed=3), aggregate=SequenceMean())),
    "kl-cov": Row(Surrogate(trust=KLCov(percent=20.0, coefficient=2.0))),
    "kl-cov, everywhere": Row(Surrogate(trust=KLCov(percent=100.0), aggregate=SequenceMean())),
    "steady entropy": Row(Surrogate(weights=[SteadyEntropy(low=0.3)]), honest=None),
    "steady entropy, linear": Row(
        Surrogate(trust=Unlimited(), weights=[SteadyEntropy(map="linear", low=0.1, high=3.0)]), honest=None
    ),
    "steady entropy, exact": Row(
        Surrogate(ratio=None, trust=Unlimited(), weights=[SteadyEntropy(score="exact", low=0.1, ratio=Token())]),
        honest=None,
    ),
    "entropy clip": Row(Surrogate(trust=EntropyClip(low=0.3, high=0.4, strength=0.8, dual=1.5)), honest=None),
    "entropy advantage": Row(Surrogate(trust=EntropyAdvantage()), honest=None),
    "entropy advantage, as released": Row(
        Surrogate(
            trust=EntropyAdvantage(
                trust=EntropyClip(low=0.1, level=EntropyLevel(quantile=0.5, compat="released")), strength=0.5
            ),
            aggregate=SequenceMean(),
        ),
        honest=None,
    ),
}

CREDITS = {
    "by token": Row(BY_TOKEN, relative=True),
    "by token, everyone's": Row(
        Relative(baseline=GroupMean(unit="token", within=Everyone()), scale=GroupStd(unit="token")), relative=True
    ),
    "bounded": Row(Bounded(credit=BY_TOKEN, otherwise=Relative(scale=None), limit=1.2), relative=True),
}
