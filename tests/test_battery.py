"""Every part, one row each. Ratios, trusts, weights, aggregates and regularisers stand inside objectives."""

from __future__ import annotations

import battery
import pytest
from battery import Row

import polopt as po
from polopt.credit import (
    GAE,
    BatchMean,
    Constant,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    Relative,
    RewardToGo,
    Whitened,
)
from polopt.objectives import (
    Clip,
    ClipWeight,
    Entropy,
    Proximal,
    ReferenceKL,
    Score,
    Sequence,
    SequenceMean,
    SequenceSum,
    Surrogate,
    Token,
    TokenMean,
    TruncatedImportance,
    Unlimited,
    ValueLoss,
)
from polopt.part import Part
from polopt.rewards import KLPenalty, Outcome, Overlong, Sum
from polopt.sampling import Best, Distinct, Varied

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
    "two of a kind": Row(Surrogate(regularise=[KL, KL.but(gradient="k2", value="k2")])),
    "value": Row(Surrogate(regularise=[ValueLoss(target=GAE(), clip=None)])),
    "clipped value": Row(Surrogate(regularise=[ValueLoss(target=GAE(gamma=0.9, lam=0.5), clip=0.2)])),
}

CREDITS = {
    "grpo": Row(Relative(), relative=True),
    "group mean": Row(Relative(baseline=GroupMean(), scale=None), relative=True),
    "population std": Row(Relative(scale=GroupStd(correction=0, eps=0.0)), relative=True),
    "leave one out": Row(Relative(baseline=LeaveOneOut(), scale=None)),
    "batch mean": Row(Relative(baseline=BatchMean(), scale=None), relative=True),
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

KINDS = [
    (OBJECTIVES, battery.OBJECTIVE),
    (CREDITS, battery.CREDIT),
    (REWARDS, battery.REWARD),
    (SELECTS, battery.SELECT),
]
CASES = [
    pytest.param(check, row, id=f"{check.__name__}-{name}")
    for rows, checks in KINDS
    for name, row in rows.items()
    for check in checks
]


def published():
    """The objective and the credit of every method whose needs a random batch meets, each sentence once."""
    filled = {k for k, v in vars(battery.random_batch().experience).items() if v is not None}
    filled |= {f"extras.{k}" for k in battery.random_batch().experience.extras}
    rows = {}
    for slug in po.slugs():
        algorithm = po.method(slug)
        for part, checks in (
            (algorithm.objective, (battery.objective_split, battery.objective_poison, battery.objective_extremes)),
            (algorithm.credit, (battery.credit_padding, battery.credit_permutation, battery.credit_poison)),
        ):
            if part.all_needs <= filled:
                rows.setdefault(repr(part), (slug, part, checks))
    return [
        pytest.param(check, Row(part), id=f"{check.__name__}-{slug}")
        for slug, part, checks in rows.values()
        for check in checks
    ]


@pytest.mark.parametrize(("check", "row"), CASES)
def test_battery(check, row):
    check(row)


@pytest.mark.parametrize(("check", "row"), published())
def test_methods(check, row):
    check(row)


def test_every_part_has_a_row():
    """A part that a room exports and that does something must stand in a table."""
    seen = {type(p) for rows, _ in KINDS for row in rows.values() for p in row.part.parts()}
    kinds = {po.sampling.Sampling, *po.sampling.Sampling.__subclasses__()}  # these call a loop: see test_sampling
    for room in (po.credit, po.objectives, po.rewards, po.sampling):
        for name in room.__all__:
            part = getattr(room, name)
            if isinstance(part, type) and issubclass(part, Part) and not part.__subclasses__() and part not in kinds:
                assert part in seen, f"{name} has no row in the battery"
