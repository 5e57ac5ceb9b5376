"""Rows of the battery: parts that watch the policy's entropy."""

from __future__ import annotations

from battery import PartRow

from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.features.groupings import WholeBatch
from polopt.methods.clip_cov_kl_cov import ClipCov, KLCov
from polopt.methods.hapo import BoundedAdvantage, EntropyAdvantage, EntropyClip, EntropyLevel
from polopt.methods.steer import STEERWeight
from polopt.objectives import SequenceMean, Surrogate, TokenRatio, Unclipped

BY_TOKEN = RelativeAdvantage(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))

# Weights stop their gradient, but move with what a finite difference nudges: no honest twin.
OBJECTIVES = {
    "clip-cov": PartRow(Surrogate(trust=ClipCov(share=0.2, least=0.2, most=9.0, low=0.3, high=0.3))),
    "clip-cov, one decision": PartRow(Surrogate(trust=ClipCov(least=0.0, seed=3), aggregate=SequenceMean())),
    "kl-cov": PartRow(Surrogate(trust=KLCov(percent=20.0, coefficient=2.0))),
    "kl-cov, everywhere": PartRow(Surrogate(trust=KLCov(percent=100.0), aggregate=SequenceMean())),
    "steady entropy": PartRow(Surrogate(weights=[STEERWeight(low=0.3)]), honest=None),
    "steady entropy, linear": PartRow(
        Surrogate(trust=Unclipped(), weights=[STEERWeight(map="linear", low=0.1, high=3.0)]), honest=None
    ),
    "steady entropy, exact": PartRow(
        Surrogate(ratio=None, trust=Unclipped(), weights=[STEERWeight(score="exact", low=0.1, ratio=TokenRatio())]),
        honest=None,
    ),
    "entropy clip": PartRow(Surrogate(trust=EntropyClip(low=0.3, high=0.4, strength=0.8, dual=1.5)), honest=None),
    "entropy advantage": PartRow(Surrogate(trust=EntropyAdvantage()), honest=None),
    "entropy advantage, as released": PartRow(
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
    "by token": PartRow(BY_TOKEN, relative=True),
    "by token, everyone's": PartRow(
        RelativeAdvantage(baseline=GroupMean(unit="token", within=WholeBatch()), scale=GroupStd(unit="token")),
        relative=True,
    ),
    "bounded": PartRow(
        BoundedAdvantage(credit=BY_TOKEN, otherwise=RelativeAdvantage(scale=None), limit=1.2), relative=True
    ),
}
