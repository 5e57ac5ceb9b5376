"""Rows of the battery: parts of the methods whose room is objectives."""

from __future__ import annotations

import dataclasses

import torch
from batches import VOCABULARY, SampleBatch, gaussian_batch, points_batch, poisoned, random_batch
from battery import PartRow
from row_batches import group_and_outcome, history_batch, taught_row, text_batch
from rows_credit import BY_TOKEN

from polopt.credit import RelativeAdvantage
from polopt.methods.aligndistil import ExtrapolationWeight
from polopt.methods.alol import PositiveAdvantage, PromptValueLoss
from polopt.methods.bapo_clip import BalancedClip
from polopt.methods.bupo import LayerEntropy, LayerRatio
from polopt.methods.chord import UncertaintyWeight
from polopt.methods.clip_cov_kl_cov import ClipCov, KLCov
from polopt.methods.cot2 import DrawMeanRatio, SoftTargets
from polopt.methods.dhpo import HybridClip, NormalisedEntropy
from polopt.methods.diffusion_nft import ReflectedFlow, VelocityDistance
from polopt.methods.epo import EntropySmoothing
from polopt.methods.etcon import EtConCleanness, EtConConsistency, EtConCorrectness, EtConForm
from polopt.methods.grpo_guard import GRPOGuardRatio, InverseTimeStep
from polopt.methods.hapo import BoundedAdvantage, EntropyAdvantage, EntropyClip, EntropyLevel
from polopt.methods.nft import NFTTerm
from polopt.methods.otr import OneToken
from polopt.methods.p3o_pairwise import PairwiseSurrogate
from polopt.methods.rec import BalancedGroups, RatioGate
from polopt.methods.rover import ValueRegression
from polopt.methods.rso import FirstRound, Tournament
from polopt.methods.seppo import AnchoredSign
from polopt.methods.spo_selfsup import DegreeClassification, DiscriminantHead, Intact
from polopt.methods.srpo_routing import TeacherCertainty
from polopt.methods.steer import STEERWeight
from polopt.objectives import (
    AuxiliaryLoss,
    Branch,
    BranchedObjective,
    DenoisingReward,
    Distillation,
    OldPolicyRatio,
    PairedObjective,
    PolicyGradient,
    SequenceMean,
    SequenceRatio,
    SequenceSum,
    Surrogate,
    TokenRatio,
    Unclipped,
    WithMetrics,
)


def token_batch(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """A random batch with tokens at the decisions and -1 off the mask."""
    batch = random_batch(seed, B, T, clean)
    tokens = torch.randint(0, VOCABULARY, (B, T), generator=torch.Generator().manual_seed(seed))
    return SampleBatch(batch.experience.replace(extras={"tokens": torch.where(batch.mask, tokens, -1)}), batch.leaves)


def seated_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose rows have seats."""
    batch = random_batch(seed, clean=clean)
    seats = torch.randperm(len(batch.mask), generator=torch.Generator().manual_seed(seed))
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"seat": seats}))


def soft_targets_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose decisions are several draws each, with distributions as targets."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(400 + seed)
    B, T = batch.mask.shape
    targets = torch.randn(*batch.leaves["logits"].shape, generator=g, dtype=torch.float64).softmax(-1)
    extras = {"drawn": torch.randint(1, 4, (B, T), generator=g)}
    extras["targets"] = targets if clean else poisoned(targets, batch.mask)
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def degree_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of answers with degrees of what they lack, and the policy's hidden states."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(500 + seed)
    hidden = torch.randn(*batch.mask.shape, 3, generator=g, dtype=torch.float64)
    hidden = hidden if clean else poisoned(hidden, batch.mask)
    degree = torch.randint(0, 3, (len(batch.mask),), generator=g)
    leaves = {**batch.leaves, "extras.hidden": hidden.requires_grad_()}
    return SampleBatch(batch.experience.replace(extras={"degree": degree}), leaves)


DEGREES = DegreeClassification(degrees=3, head=DiscriminantHead(shrinkage=0.5))

INNER = Surrogate(ratio=LayerRatio(layer=1), trust=Unclipped())

OBJECTIVES = {
    # The head is fitted to the states and held: its change has no gradient.
    "degrees": PartRow(DEGREES, honest=None, batch=degree_batch),
    "degrees and pairs": PartRow(
        BranchedObjective(
            routes=[Branch(objective=PairedObjective(), rows=Intact()), Branch(objective=DEGREES, weight=0.5)]
        ),
        honest=None,
        batch=degree_batch,
    ),
    # The search goes in steps: small differences of the policy leave its bounds where they are.
    "balanced": PartRow(Surrogate(trust=BalancedClip())),
    "balanced, code": PartRow(Surrogate(trust=BalancedClip(share="surrogate", target=0.9, dual=None))),
    "balanced, of sequences": PartRow(
        Surrogate(
            ratio=SequenceRatio(),
            trust=BalancedClip(ratio=SequenceRatio(), low=(0.9, 0.95), high=(1.0, 1.1), step_size=0.01),
        )
    ),
    "better than the reference": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(trust=Unclipped()), rows=PositiveAdvantage()),
                Branch(objective=AuxiliaryLoss(regularise=[PromptValueLoss()], aggregate=SequenceSum(length=1))),
            ]
        )
    ),
    "inner": taught_row(INNER),
    "inner, watched": taught_row(WithMetrics(objective=INNER, gauges=[LayerEntropy(layer=1), LayerEntropy(layer=1)])),
    "undecided": PartRow(Surrogate(ratio=None, trust=PolicyGradient(), weights=[UncertaintyWeight()]), honest=None),
    "clip-cov": PartRow(Surrogate(trust=ClipCov(share=0.2, least=0.2, most=9.0, low=0.3, high=0.3))),
    "entropy smoothing": PartRow(
        Surrogate(regularise=[EntropySmoothing(coefficient=0.5, low=0.98, high=1.02)]), batch=history_batch
    ),
    "clip-cov, one decision": PartRow(Surrogate(trust=ClipCov(least=0.0, seed=3), aggregate=SequenceMean())),
    "kl-cov": PartRow(Surrogate(trust=KLCov(percent=20.0, coefficient=2.0))),
    "kl-cov, everywhere": PartRow(Surrogate(trust=KLCov(percent=100.0), aggregate=SequenceMean())),
    "per draw": PartRow(Surrogate(ratio=DrawMeanRatio()), batch=soft_targets_batch),
    "product of draws": PartRow(Surrogate(ratio=DrawMeanRatio(root=False)), batch=soft_targets_batch),
    "soft targets": PartRow(AuxiliaryLoss(regularise=[SoftTargets()]), batch=soft_targets_batch),
    # s_t has the value of the row's ratio and the gradient of its own token's; the weight has none.
    "hybrid": PartRow(Surrogate(trust=HybridClip(sequence=(0.05, 0.1)), aggregate=SequenceMean()), honest=None),
    "hybrid by entropy": PartRow(Surrogate(trust=HybridClip(weight=NormalisedEntropy())), honest=None),
    "hybrid, tokens alone": PartRow(Surrogate(trust=HybridClip(weight=1.0))),
    "where it hesitates": PartRow(Surrogate(weights=[NormalisedEntropy()]), honest=None),
    "guarded": PartRow(Surrogate(ratio=GRPOGuardRatio(), weights=[InverseTimeStep()]), batch=gaussian_batch),
    "guarded, summed": PartRow(Surrogate(ratio=GRPOGuardRatio(reduce="sum"), trust=Unclipped()), batch=gaussian_batch),
    # The formula stops the gradient of the entropy, but a finite difference moves it.
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
    "reflected flow": PartRow(
        Surrogate(ratio=None, trust=ReflectedFlow(b=0.5), regularise=[VelocityDistance()]),
        batch=points_batch,
        honest=None,
    ),
    "good points alone": PartRow(
        Surrogate(ratio=None, trust=ReflectedFlow(positive_only=True)), batch=points_batch, honest=None
    ),
    "flipped opponents": PartRow(
        PairedObjective(implicit=AnchoredSign(of=DenoisingReward(scale=0.5, anchor="opponent"))), batch=points_batch
    ),
    # Beyond the floor the gradient is that of what lies below it.
    "negative": PartRow(Surrogate(trust=NFTTerm()), honest=None),
    "negative, low floor": PartRow(Surrogate(trust=NFTTerm(omega="grpo", floor=1e-3)), honest=None),
    "negative, unweighted": PartRow(
        Surrogate(ratio=SequenceRatio(), trust=NFTTerm(omega="none", floor=1e-3)), honest=None
    ),
    "one token": PartRow(
        Surrogate(ratio=None, trust=OneToken(temperature=1.3, miss=-0.1, floor=-2.0)), honest=None, batch=token_batch
    ),
    "one token, drawn": PartRow(
        Surrogate(ratio=None, trust=OneToken(draws=7, temperature=0.8, miss=-0.1)), honest=None, batch=token_batch
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
    # The formula stops the gradients of targets, weights and the teacher.
    "value regression": taught_row(Surrogate(ratio=OldPolicyRatio(), trust=ValueRegression(rho=0.7)), honest=None),
    "extrapolation": taught_row(
        Surrogate(ratio=None, trust=Distillation(alpha=1.0), weights=[ExtrapolationWeight()]), honest=None
    ),
    "teacher certainty": taught_row(Surrogate(ratio=None, trust=Distillation(), weights=[TeacherCertainty(beta=2.0)])),
    # The formula stops the gradient of the weights, but a finite difference moves them.
    "steady entropy": PartRow(Surrogate(weights=[STEERWeight(low=0.3)]), honest=None),
    "steady entropy, linear": PartRow(
        Surrogate(trust=Unclipped(), weights=[STEERWeight(map="linear", low=0.1, high=3.0)]), honest=None
    ),
    "first round": PartRow(PairedObjective(matching=FirstRound()), batch=seated_batch),
    "tournament": PartRow(PairedObjective(matching=Tournament()), batch=seated_batch),
    # The formula stops the gradient of the pair's weight, but a finite difference moves it.
    "pairs, clipped together": PartRow(PairwiseSurrogate(), honest=None),
    "pairs, clipped apart": PartRow(PairwiseSurrogate(clipping="separate", max_weight=1.0)),
    "pairs, clipped token by token": PartRow(PairwiseSurrogate(clipping="tokens", clip=0.5), honest=None),
    "steady entropy, exact": PartRow(
        Surrogate(ratio=None, trust=Unclipped(), weights=[STEERWeight(score="exact", low=0.1, ratio=TokenRatio())]),
        honest=None,
    ),
}

CREDITS = {
    "bounded": PartRow(
        BoundedAdvantage(credit=BY_TOKEN, otherwise=RelativeAdvantage(scale=None), limit=1.2), relative=True
    ),
}

REWARDS = {
    "in form": PartRow(EtConForm(), batch=text_batch),
    "clean": PartRow(EtConCleanness(), batch=text_batch),
    "correct": PartRow(EtConCorrectness(), batch=text_batch),
    "consistent": PartRow(EtConConsistency(), batch=text_batch),
}

SELECTS = {
    "balanced": PartRow(BalancedGroups(), key=group_and_outcome),
}
