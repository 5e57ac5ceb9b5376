"""Rows of the battery: the parts that the ancestors of all methods are made of."""

from __future__ import annotations

from battery import PartRow

from polopt.credit import (
    GAE,
    ConstantAdvantage,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    RelativeAdvantage,
    RewardToGo,
    WeightedAdvantage,
    WeightedSum,
    WhitenedAdvantage,
)
from polopt.features.groupings import Strata, WholeBatch
from polopt.features.masks import IsCorrect, IsDemonstration
from polopt.features.rows import DecisionCount, MeanEntropy, RowField, TurnCount
from polopt.methods.t_ppo import DecoupledTargets
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    ClipWeight,
    EntropyBonus,
    OldPolicyRatio,
    PolicyGradient,
    ReferenceKL,
    SequenceMean,
    SequenceRatio,
    SequenceSum,
    Surrogate,
    TokenMean,
    TokenRatio,
    TruncatedImportance,
    Unclipped,
    ValueLoss,
)
from polopt.rewards import EnvironmentReward, KLPenalty, OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.sampling import MixedGroups, TopK, UniqueAnswers
from polopt.schedules import Schedule

KL = ReferenceKL(coefficient=0.5)

OBJECTIVES = {
    "default": PartRow(Surrogate()),
    "no ratio": PartRow(Surrogate(ratio=None, trust=Unclipped()), honest=Surrogate(trust=PolicyGradient())),
    "score": PartRow(Surrogate(trust=PolicyGradient(), aggregate=SequenceSum())),
    "proximal": PartRow(Surrogate(ratio=OldPolicyRatio(), trust=Unclipped(), weights=[TruncatedImportance()])),
    "sequence": PartRow(Surrogate(ratio=SequenceRatio(), trust=Clip(low=0.01, high=0.02), aggregate=SequenceMean())),
    "sequence of proximal": PartRow(Surrogate(ratio=SequenceRatio(token=OldPolicyRatio()), trust=Unclipped())),
    "dual clip": PartRow(Surrogate(trust=Clip(low=0.1, high=0.3, dual=1.2))),
    "clip weight": PartRow(Surrogate(trust=ClipWeight(high=0.2)), honest=None),
    "clip weight, two sides": PartRow(
        Surrogate(ratio=SequenceRatio(), trust=ClipWeight(low=0.1, high=0.1)), honest=None
    ),
    "token mean": PartRow(Surrogate(aggregate=TokenMean(), trust=Unclipped())),
    "sequence mean": PartRow(Surrogate(aggregate=SequenceMean(), trust=Unclipped())),
    "sequence sum": PartRow(Surrogate(aggregate=SequenceSum(length=3), trust=Unclipped())),
    "truncated importance": PartRow(Surrogate(weights=[TruncatedImportance(cap=1.05)])),
    "truncated importance of rows": PartRow(Surrogate(weights=[TruncatedImportance(cap=1.05, unit="row")])),
    "k1": PartRow(Surrogate(regularise=[ReferenceKL(value="k1", gradient="k1")])),
    "k2": PartRow(Surrogate(regularise=[ReferenceKL(value="k2", gradient="k2")])),
    "k3": PartRow(Surrogate(regularise=[ReferenceKL(value="k3", gradient="k3")])),
    "k1 with k2's gradient": PartRow(
        Surrogate(regularise=[ReferenceKL(value="k1", gradient="k2")]),
        honest=Surrogate(regularise=[ReferenceKL(value="k2", gradient="k2")]),
    ),
    "k3 with ratio": PartRow(
        Surrogate(
            aggregate=SequenceMean(), regularise=[ReferenceKL(ratio=TokenRatio()), EntropyBonus(coefficient=0.1)]
        ),
        # The ratio multiplies what is differentiated, not what is reported.
        honest=None,
    ),
    "entropy": PartRow(Surrogate(regularise=[EntropyBonus()])),
    "routed": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(), rows=IsCorrect()),
                Branch(
                    objective=Surrogate(trust=PolicyGradient(), aggregate=SequenceMean()),
                    rows=IsCorrect(invert=True),
                    weight=Schedule(knots=[(0, 0.5), (2, 1.0)]),
                ),
            ]
        )
    ),
    "routed by hand": PartRow(
        BranchedObjective(routes=[Branch(objective=Surrogate(), rows=IsDemonstration(invert=True))])
    ),
    "two of a kind": PartRow(Surrogate(regularise=[KL, KL.but(gradient="k2", value="k2")])),
    "value": PartRow(Surrogate(regularise=[ValueLoss(clip=None)])),
    "clipped value": PartRow(Surrogate(regularise=[ValueLoss(clip=0.2)])),
}

CREDITS = {
    "grpo": PartRow(RelativeAdvantage(), relative=True),
    "group mean": PartRow(RelativeAdvantage(baseline=GroupMean(), scale=None), relative=True),
    "population std": PartRow(RelativeAdvantage(scale=GroupStd(correction=0, eps=0.0)), relative=True),
    "leave one out": PartRow(RelativeAdvantage(baseline=LeaveOneOut(), scale=None)),
    "batch mean": PartRow(RelativeAdvantage(baseline=GroupMean(within=WholeBatch()), scale=None), relative=True),
    "batch std": PartRow(RelativeAdvantage(scale=GroupStd(within=WholeBatch()))),
    "strata": PartRow(
        RelativeAdvantage(
            baseline=GroupMean(within=Strata(by=DecisionCount())), scale=GroupStd(within=Strata(by=TurnCount()))
        ),
    ),
    "strata by entropy": PartRow(RelativeAdvantage(baseline=LeaveOneOut(within=Strata(by=MeanEntropy())), scale=None)),
    "strata as noted": PartRow(
        RelativeAdvantage(baseline=GroupMean(within=Strata(by=RowField(name="row"))), scale=None), relative=True
    ),
    "blend": PartRow(
        WeightedSum(
            shares=[
                WeightedAdvantage(credit=RelativeAdvantage(), weight=0.5),
                WeightedAdvantage(
                    credit=RelativeAdvantage(baseline=GroupMean(within=WholeBatch())),
                    weight=Schedule(knots=[(0, 1.0), (4, 0.0)]),
                ),
            ]
        )
    ),
    "moving average": PartRow(RelativeAdvantage(baseline=MovingAverage(decay=0.5), scale=None)),
    "greedy": PartRow(RelativeAdvantage(baseline=GreedyReturn(), scale=None)),
    "nothing": PartRow(RelativeAdvantage(baseline=None, scale=None)),
    "constant": PartRow(ConstantAdvantage(value=-2.0)),
    "to go": PartRow(RewardToGo()),
    "discounted to go": PartRow(RewardToGo(gamma=0.9)),
    "gae": PartRow(GAE(gamma=0.9, lam=0.8)),
    "two lambdas": PartRow(DecoupledTargets(credit=GAE(gamma=0.9, lam=0.8), target=GAE(gamma=0.9, lam=1.0))),
    "gae, lam 1": PartRow(GAE(lam=1.0)),
    "whitened": PartRow(WhitenedAdvantage(credit=RelativeAdvantage())),
    "whitened constant": PartRow(WhitenedAdvantage(credit=ConstantAdvantage(value=0.1)), relative=True),
    "whitened gae": PartRow(WhitenedAdvantage(credit=GAE())),
}

REWARDS = {
    "environment": PartRow(EnvironmentReward()),
    "outcome": PartRow(OutcomeReward(scale=2.0, shift=-1.0)),
    "overlong": PartRow(OverlongPenalty(limit=6, buffer=3)),
    "overlong by horizon": PartRow(OverlongPenalty()),
    "kl": PartRow(KLPenalty()),
    "kl by k3": PartRow(KLPenalty(estimator="k3")),
    "sum of outcomes": PartRow(SumOfRewards(terms=[OutcomeReward(), OverlongPenalty(limit=4)], weights=[1.0, 0.5])),
    "sum with kl": PartRow(SumOfRewards(terms=[OutcomeReward(), KLPenalty()])),
}

SELECTS = {
    "varied": PartRow(MixedGroups()),
    "best": PartRow(TopK(), key=lambda e: list(zip(e.group.tolist(), e.outcome.tolist(), strict=True))),
    "two best": PartRow(
        TopK(count=2, threshold=0.5), key=lambda e: list(zip(e.group.tolist(), e.outcome.tolist(), strict=True))
    ),
    "distinct": PartRow(UniqueAnswers(), key=lambda e: list(zip(e.group.tolist(), e.extras["answer"], strict=True))),
}
