"""Rows of the battery: the parts that the ancestors of all methods are made of."""

from __future__ import annotations

from battery import Row

from polopt.credit import (
    GAE,
    Blend,
    Constant,
    Everyone,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    Length,
    MeanEntropy,
    MovingAverage,
    Noted,
    Relative,
    RewardToGo,
    Share,
    Strata,
    Turns,
    Whitened,
)
from polopt.objectives import (
    Clip,
    ClipWeight,
    Demonstrated,
    Entropy,
    Proximal,
    ReferenceKL,
    Route,
    Routed,
    Score,
    Sequence,
    SequenceMean,
    SequenceSum,
    Solved,
    Surrogate,
    Token,
    TokenMean,
    TruncatedImportance,
    Unlimited,
    ValueLoss,
)
from polopt.rewards import Environment, KLPenalty, Outcome, Overlong, Sum
from polopt.sampling import Best, Distinct, Varied
from polopt.schedules import Schedule

KL = ReferenceKL(coefficient=0.5)

OBJECTIVES = {
    "default": Row(Surrogate()),
    "no ratio": Row(Surrogate(ratio=None, trust=Unlimited()), honest=Surrogate(trust=Score())),
    "score": Row(Surrogate(trust=Score(), aggregate=SequenceSum())),
    "proximal": Row(Surrogate(ratio=Proximal(), trust=Unlimited(), weights=[TruncatedImportance()])),
    "sequence": Row(Surrogate(ratio=Sequence(), trust=Clip(low=0.01, high=0.02), aggregate=SequenceMean())),
    "sequence of proximal": Row(Surrogate(ratio=Sequence(token=Proximal()), trust=Unlimited())),
    "dual clip": Row(Surrogate(trust=Clip(low=0.1, high=0.3, dual=1.2))),
    "clip weight": Row(Surrogate(trust=ClipWeight(high=0.2)), honest=None),
    "clip weight, two sides": Row(Surrogate(ratio=Sequence(), trust=ClipWeight(low=0.1, high=0.1)), honest=None),
    "token mean": Row(Surrogate(aggregate=TokenMean(), trust=Unlimited())),
    "sequence mean": Row(Surrogate(aggregate=SequenceMean(), trust=Unlimited())),
    "sequence sum": Row(Surrogate(aggregate=SequenceSum(length=3), trust=Unlimited())),
    "truncated importance": Row(Surrogate(weights=[TruncatedImportance(cap=1.05)])),
    "truncated importance of rows": Row(Surrogate(weights=[TruncatedImportance(cap=1.05, unit="sequence")])),
    "k1": Row(Surrogate(regularise=[ReferenceKL(value="k1", gradient="k1")])),
    "k2": Row(Surrogate(regularise=[ReferenceKL(value="k2", gradient="k2")])),
    "k3": Row(Surrogate(regularise=[ReferenceKL(value="k3", gradient="k3")])),
    "k1 with k2's gradient": Row(
        Surrogate(regularise=[ReferenceKL(value="k1", gradient="k2")]),
        honest=Surrogate(regularise=[ReferenceKL(value="k2", gradient="k2")]),
    ),
    "k3 with ratio": Row(
        Surrogate(aggregate=SequenceMean(), regularise=[ReferenceKL(ratio=Token()), Entropy(coefficient=0.1)]),
        # The ratio multiplies what is differentiated, not what is reported.
        honest=None,
    ),
    "entropy": Row(Surrogate(regularise=[Entropy()])),
    "routed": Row(
        Routed(
            routes=[
                Route(objective=Surrogate(), rows=Solved()),
                Route(
                    objective=Surrogate(trust=Score(), aggregate=SequenceMean()),
                    rows=Solved(invert=True),
                    weight=Schedule(knots=[(0, 0.5), (2, 1.0)]),
                ),
            ]
        )
    ),
    "routed by hand": Row(Routed(routes=[Route(objective=Surrogate(), rows=Demonstrated(invert=True))])),
    "two of a kind": Row(Surrogate(regularise=[KL, KL.but(gradient="k2", value="k2")])),
    "value": Row(Surrogate(regularise=[ValueLoss(target=GAE(), clip=None)])),
    "clipped value": Row(Surrogate(regularise=[ValueLoss(target=GAE(gamma=0.9, lam=0.5), clip=0.2)])),
}

CREDITS = {
    "grpo": Row(Relative(), relative=True),
    "group mean": Row(Relative(baseline=GroupMean(), scale=None), relative=True),
    "population std": Row(Relative(scale=GroupStd(correction=0, eps=0.0)), relative=True),
    "leave one out": Row(Relative(baseline=LeaveOneOut(), scale=None)),
    "batch mean": Row(Relative(baseline=GroupMean(within=Everyone()), scale=None), relative=True),
    "batch std": Row(Relative(scale=GroupStd(within=Everyone()))),
    "strata": Row(
        Relative(baseline=GroupMean(within=Strata(by=Length())), scale=GroupStd(within=Strata(by=Turns()))),
    ),
    "strata by entropy": Row(Relative(baseline=LeaveOneOut(within=Strata(by=MeanEntropy())), scale=None)),
    "strata as noted": Row(
        Relative(baseline=GroupMean(within=Strata(by=Noted(name="row"))), scale=None), relative=True
    ),
    "blend": Row(
        Blend(
            shares=[
                Share(credit=Relative(), weight=0.5),
                Share(
                    credit=Relative(baseline=GroupMean(within=Everyone())),
                    weight=Schedule(knots=[(0, 1.0), (4, 0.0)]),
                ),
            ]
        )
    ),
    "moving average": Row(Relative(baseline=MovingAverage(decay=0.5), scale=None)),
    "greedy": Row(Relative(baseline=GreedyReturn(), scale=None)),
    "nothing": Row(Relative(baseline=None, scale=None)),
    "constant": Row(Constant(value=-2.0)),
    "to go": Row(RewardToGo()),
    "discounted to go": Row(RewardToGo(gamma=0.9)),
    "gae": Row(GAE(gamma=0.9, lam=0.8)),
    "gae, lam 1": Row(GAE(lam=1.0)),
    "whitened": Row(Whitened(credit=Relative())),
    "whitened constant": Row(Whitened(credit=Constant(value=0.1)), relative=True),
    "whitened gae": Row(Whitened(credit=GAE())),
}

REWARDS = {
    "environment": Row(Environment()),
    "outcome": Row(Outcome(scale=2.0, shift=-1.0)),
    "overlong": Row(Overlong(limit=6, buffer=3)),
    "overlong by horizon": Row(Overlong()),
    "kl": Row(KLPenalty()),
    "kl by k3": Row(KLPenalty(estimator="k3")),
    "sum of outcomes": Row(Sum(terms=[Outcome(), Overlong(limit=4)], weights=[1.0, 0.5])),
    "sum with kl": Row(Sum(terms=[Outcome(), KLPenalty()])),
}

SELECTS = {
    "varied": Row(Varied()),
    "best": Row(Best(), key=lambda e: list(zip(e.group.tolist(), e.outcome.tolist(), strict=True))),
    "two best": Row(
        Best(count=2, threshold=0.5), key=lambda e: list(zip(e.group.tolist(), e.outcome.tolist(), strict=True))
    ),
    "distinct": Row(Distinct(), key=lambda e: list(zip(e.group.tolist(), e.extras["answer"], strict=True))),
}
