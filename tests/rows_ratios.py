"""Rows of the battery: ratios, trust regions and weights for off-policy data."""

from __future__ import annotations

from batches import gaussian_batch
from battery import PartRow

from polopt.methods.bapo_clip import BalancedClip
from polopt.methods.dhpo import HybridClip, NormalisedEntropy
from polopt.methods.grpo_guard import GRPOGuardRatio, InverseTimeStep
from polopt.methods.nft import NFTTerm
from polopt.methods.rec import BalancedGroups, RatioGate
from polopt.objectives import (
    ExponentialAdvantageWeight,
    ForwardKL,
    ImportanceWeight,
    PolicyGradient,
    SamplerKL,
    SequenceMean,
    SequenceRatio,
    Surrogate,
    Unclipped,
)

OBJECTIVES = {
    # The search goes in steps: small differences of the policy leave its bounds where they are.
    "balanced": PartRow(Surrogate(trust=BalancedClip())),
    "balanced, code": PartRow(Surrogate(trust=BalancedClip(share="surrogate", target=0.9, dual=None))),
    "balanced, of sequences": PartRow(
        Surrogate(
            ratio=SequenceRatio(),
            trust=BalancedClip(ratio=SequenceRatio(), low=(0.9, 0.95), high=(1.0, 1.1), step_size=0.01),
        )
    ),
    # s_t has the value of the row's ratio and the gradient of its own token's; the weight has none.
    "hybrid": PartRow(Surrogate(trust=HybridClip(sequence=(0.05, 0.1)), aggregate=SequenceMean()), honest=None),
    "hybrid by entropy": PartRow(Surrogate(trust=HybridClip(weight=NormalisedEntropy())), honest=None),
    "hybrid, tokens alone": PartRow(Surrogate(trust=HybridClip(weight=1.0))),
    "where it hesitates": PartRow(Surrogate(weights=[NormalisedEntropy()]), honest=None),
    # Beyond the floor the gradient is that of what lies below it.
    "negative": PartRow(Surrogate(trust=NFTTerm()), honest=None),
    "negative, low floor": PartRow(Surrogate(trust=NFTTerm(omega="grpo", floor=1e-3)), honest=None),
    "negative, unweighted": PartRow(
        Surrogate(ratio=SequenceRatio(), trust=NFTTerm(omega="none", floor=1e-3)), honest=None
    ),
    # A gate, and a weight that does not see the policy, do not change where the gradient leads.
    "one-sided gate": PartRow(Surrogate(trust=Unclipped(), weights=[RatioGate()])),
    "two-sided gate": PartRow(Surrogate(trust=PolicyGradient(), weights=[RatioGate(side="two", low=0.1, high=0.1)])),
    "ring": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[RatioGate(side="ring", low=0.05, high=0.05, outer=(0.1, 0.1))])
    ),
    "gate of sequences": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[RatioGate(ratio=SequenceRatio(), low=0.05, high=0.05)])
    ),
    "importance": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[ImportanceWeight()]), honest=Surrogate(trust=Unclipped())
    ),
    "importance, bounded": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[ImportanceWeight(low=0.1, high=0.1)]), honest=None
    ),
    "exponential advantage": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[ExponentialAdvantageWeight(temperature=0.5)])
    ),
    "kl to the sampler": PartRow(Surrogate(trust=PolicyGradient(), regularise=[SamplerKL(coefficient=0.3)])),
    "forward kl": PartRow(Surrogate(trust=PolicyGradient(), regularise=[ForwardKL(coefficient=0.3)])),
    "guarded": PartRow(Surrogate(ratio=GRPOGuardRatio(), weights=[InverseTimeStep()]), batch=gaussian_batch),
    "guarded, summed": PartRow(Surrogate(ratio=GRPOGuardRatio(reduce="sum"), trust=Unclipped()), batch=gaussian_batch),
}

SELECTS = {
    "balanced": PartRow(BalancedGroups(), key=lambda e: list(zip(e.group.tolist(), e.outcome.tolist(), strict=True))),
}
