"""Rows of the battery: parts that watch the policy's entropy."""

from __future__ import annotations

from battery import Row

from polopt.objectives import ClipCov, KLCov, SequenceMean, SteadyEntropy, Surrogate, Token, Unlimited

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
}
