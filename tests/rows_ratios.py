"""Rows of the battery: ratios, trust regions and weights for off-policy data."""

from __future__ import annotations

from batches import gaussian_batch
from battery import Row

from polopt.objectives import (
    BalancedClip,
    ExpAdvantage,
    ForwardKL,
    Gate,
    Guarded,
    HybridClip,
    Importance,
    NegativeAware,
    NormalisedEntropy,
    PerTime,
    SamplerKL,
    Score,
    Sequence,
    SequenceMean,
    Surrogate,
    Unlimited,
)
from polopt.sampling import Balanced

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
    # Beyond the floor the gradient is that of what lies below it.
    "negative": Row(Surrogate(trust=NegativeAware()), honest=None),
    "negative, low floor": Row(Surrogate(trust=NegativeAware(omega="grpo", floor=1e-3)), honest=None),
    "negative, unweighted": Row(
        Surrogate(ratio=Sequence(), trust=NegativeAware(omega="none", floor=1e-3)), honest=None
    ),
    # A gate, and a weight that does not see the policy, do not change where the gradient leads.
    "one-sided gate": Row(Surrogate(trust=Unlimited(), weights=[Gate()])),
    "two-sided gate": Row(Surrogate(trust=Score(), weights=[Gate(side="two", low=0.1, high=0.1)])),
    "ring": Row(Surrogate(trust=Score(), weights=[Gate(side="ring", low=0.05, high=0.05, outer=(0.1, 0.1))])),
    "gate of sequences": Row(Surrogate(trust=Score(), weights=[Gate(ratio=Sequence(), low=0.05, high=0.05)])),
    "importance": Row(Surrogate(trust=Score(), weights=[Importance()]), honest=Surrogate(trust=Unlimited())),
    "importance, bounded": Row(Surrogate(trust=Score(), weights=[Importance(low=0.1, high=0.1)]), honest=None),
    "exponential advantage": Row(Surrogate(trust=Score(), weights=[ExpAdvantage(temperature=0.5)])),
    "kl to the sampler": Row(Surrogate(trust=Score(), regularise=[SamplerKL(coefficient=0.3)])),
    "forward kl": Row(Surrogate(trust=Score(), regularise=[ForwardKL(coefficient=0.3)])),
    "guarded": Row(Surrogate(ratio=Guarded(), weights=[PerTime()]), batch=gaussian_batch),
    "guarded, summed": Row(Surrogate(ratio=Guarded(reduce="sum"), trust=Unlimited()), batch=gaussian_batch),
}

SELECTS = {
    "balanced": Row(Balanced(), key=lambda e: list(zip(e.group.tolist(), e.outcome.tolist(), strict=True))),
}
