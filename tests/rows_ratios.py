"""Rows of the battery: ratios, trust regions and weights for off-policy data."""

from __future__ import annotations

from battery import Row

from polopt.objectives import BalancedClip, HybridClip, NormalisedEntropy, Sequence, SequenceMean, Surrogate

OBJECTIVES = {
    # The search goes in steps: small differences of the policy leave its bounds where they are.
    "balanced": Row(Surrogate(trust=BalancedClip())),
    "balanced, code": Row(Surrogate(trust=BalancedClip(share="surrogate", target=0.9, dual=None))),
    "balanced, of sequences": Row(
        Surrogate(ratio=Sequence(), trust=BalancedClip(ratio=Sequence(), low=(0.9, 0.95), high=(1.0, 1.1), step=0.01))
    ),
    # s_t has the value of the row's ratio and the gradient of its own token's; the weight has none.
    "hybrid": Row(Surrogate(trust=HybridClip(sequence=(0.05, 0.1)), aggregate=SequenceMean()), honest=None),
    "hybrid by entropy": Row(Surrogate(trust=HybridClip(weight=NormalisedEntropy())), honest=None),
    "hybrid, tokens alone": Row(Surrogate(trust=HybridClip(weight=1.0))),
    "where it hesitates": Row(Surrogate(weights=[NormalisedEntropy()]), honest=None),
}
