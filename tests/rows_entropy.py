"""Rows of the battery: parts that watch the policy's entropy."""

from __future__ import annotations

from battery import Row

from polopt.objectives import SteadyEntropy, Surrogate, Token, Unlimited

# Weights stop their gradient, but move with what a finite difference nudges: no honest twin.
OBJECTIVES = {
    "steady entropy": Row(Surrogate(weights=[SteadyEntropy(low=0.3)]), honest=None),
    "steady entropy, linear": Row(
        Surrogate(trust=Unlimited(), weights=[SteadyEntropy(map="linear", low=0.1, high=3.0)]), honest=None
    ),
    "steady entropy, exact": Row(
        Surrogate(ratio=None, trust=Unlimited(), weights=[SteadyEntropy(score="exact", low=0.1, ratio=Token())]),
        honest=None,
    ),
}
