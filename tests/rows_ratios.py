"""Rows of the battery: ratios, trust regions and weights for off-policy data."""

from __future__ import annotations

from battery import Row

from polopt.objectives import HybridClip, NormalisedEntropy, SequenceMean, Surrogate

OBJECTIVES = {
    # s_t has the value of the row's ratio and the gradient of its own token's; the weight has none.
    "hybrid": Row(Surrogate(trust=HybridClip(sequence=(0.05, 0.1)), aggregate=SequenceMean()), honest=None),
    "hybrid by entropy": Row(Surrogate(trust=HybridClip(weight=NormalisedEntropy())), honest=None),
    "hybrid, tokens alone": Row(Surrogate(trust=HybridClip(weight=1.0))),
    "where it hesitates": Row(Surrogate(weights=[NormalisedEntropy()]), honest=None),
}
