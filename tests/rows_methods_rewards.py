"""Rows of the battery: parts of the methods whose room is rewards."""

from __future__ import annotations

import dataclasses

import torch
from batches import SampleBatch, poisoned, random_batch
from battery import PartRow
from row_batches import few_tokens_batch, signal_batch, task_batch, text_batch

from polopt.credit import GAE, RelativeAdvantage, WhitenedAdvantage
from polopt.features.groupings import SamePrompt, WholeBatch
from polopt.features.masks import AnswerMatches, IsCorrect, LongerThan, SignalAbove, TaskKindIs
from polopt.methods.adacot import MaskThinkDecision, ThinkOrNot
from polopt.methods.barfi import AlignedReward, LearnedDiscount
from polopt.methods.chi2_occupancy import AnswerRatio, Departure
from polopt.methods.fapo import FlawedPositive
from polopt.methods.gtalign import DistinctPayoffs, LegiblePayoffs, StandardisedReturns
from polopt.methods.mpo_meta import AuditedRubric, ProgramGrader
from polopt.methods.noisy_verifier import BackwardCorrected, FixedRates, ForwardCorrected, NotedRates, RejudgedRates
from polopt.methods.otc import CallCosine, CallPricedReward, FewestCalls
from polopt.methods.policy_cliff import SurprisalPenalty
from polopt.methods.rlcm_scaling import LengthEnvelope
from polopt.methods.rlsqm import LinearTokenReward, UnitTest
from polopt.rewards import ConditionalReward, Discriminator, Item, OutcomeReward, RubricReward, SumOfRewards


def token_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch over a vocabulary of three tokens."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(300 + seed)
    return batch.replace(extras={"tokens": torch.randint(0, 3, batch.mask.shape, generator=g)})


def reference_features_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose decisions have features, with rollouts of a reference beside each row. What the battery
    hides off the mask it hides in those too, so they are no longer than the row."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(300 + seed)
    B, T = batch.mask.shape
    features, base = (torch.randn(B, T, 3, generator=g, dtype=torch.float64) for _ in range(2))
    known = batch.mask & (torch.rand(B, T, generator=g) < 0.7)
    if not clean:
        features, base = poisoned(features, batch.mask), poisoned(base, known)
    extras = {"features": features, "base_features": base, "base_mask": known}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def hinted_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch with a designer's hint and features of each decision."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(500 + seed)
    B, T = batch.mask.shape
    aux, features = torch.randn(B, T, generator=g).double(), torch.randn(B, T, 2, generator=g).double()
    extras = {"aux": aux, "features": features}
    if not clean:
        extras = {name: poisoned(value, batch.mask) for name, value in extras.items()}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


JUDGE = Discriminator(features=3, hidden=4, steps=3)

CREDITS = {
    "learned discount": PartRow(LearnedDiscount(start=0.8)),
    "z-score of a kind": PartRow(StandardisedReturns(credit=RelativeAdvantage(baseline=None, scale=None))),
    "minmax of a kind": PartRow(StandardisedReturns(by="minmax")),
    "robust of all": PartRow(
        StandardisedReturns(by="robust", within=WholeBatch(), credit=RelativeAdvantage(baseline=None, scale=None))
    ),
    "cdf of a group": PartRow(StandardisedReturns(by="cdf", within=SamePrompt())),
    "units before a critic": PartRow(StandardisedReturns(credit=WhitenedAdvantage(credit=GAE(cut="zero")))),
}

REWARDS = {
    "think or not": PartRow(
        ThinkOrNot(
            thought=LongerThan(than=4),
            need=TaskKindIs(kinds=("b",)),
            malformed=AnswerMatches(pattern="[01]", invert=True),
        )
    ),
    "think or not, by signals": PartRow(
        ThinkOrNot(thought=SignalAbove(name="flawed"), need=SignalAbove(name="true"), over=0.5), batch=signal_batch
    ),
    "aligned": PartRow(AlignedReward(features=2), batch=hinted_batch),
    "departure": PartRow(Departure()),
    "departure by kl": PartRow(Departure(divergence="kl", log_ratio=AnswerRatio(), limit=0.5)),
    "departure by chi2": PartRow(Departure(divergence="chi2")),
    "departure by tv": PartRow(Departure(divergence="tv")),
    "departure of occupancies": PartRow(Departure(log_ratio=JUDGE, trim=0.1), batch=reference_features_batch),
    "departure of occupancies by chi2": PartRow(
        Departure(divergence="chi2", log_ratio=JUDGE.but(hidden=0)), batch=reference_features_batch
    ),
    "fewest calls of a group": PartRow(
        CallPricedReward(efficiency=FewestCalls(among="group", right=IsCorrect(threshold=0.5))), batch=signal_batch
    ),
    "calls, alone": PartRow(CallPricedReward(efficiency=CallCosine(c=2.0)), batch=signal_batch),
    "flawed": PartRow(
        SumOfRewards(terms=[OutcomeReward(scale=2, shift=-1), FlawedPositive(weight=0.7)]), batch=signal_batch
    ),
    "legible": PartRow(LegiblePayoffs(), batch=text_batch),
    "payoffs": PartRow(DistinctPayoffs(), batch=text_batch),
    "rubric": PartRow(
        RubricReward(
            items=[Item(name="outcome", weight=2.0), Item(name="characters", most=8), Item(name="extras.row", most=5)],
            grader=ProgramGrader(),
            meta=AuditedRubric(truth="extras.greedy_reward"),
            every=1,
            samples=4,
        ),
        batch=task_batch,
    ),
    "backward": PartRow(BackwardCorrected()),
    "backward, a hopeless verifier": PartRow(
        BackwardCorrected(rates=FixedRates(false_positive=0.5, false_negative=0.45))
    ),
    "backward by kind": PartRow(BackwardCorrected(rates=FixedRates(kinds=[("a", 0.3, 0.4)]))),
    "backward as noted": PartRow(BackwardCorrected(rates=NotedRates(), least=0.2), batch=signal_batch),
    "backward, judged again": PartRow(
        BackwardCorrected(rates=RejudgedRates(negatives=0.5, positives=0.5, kinds=("b",))), batch=signal_batch
    ),
    "forward": PartRow(ForwardCorrected()),
    "forward, judged again": PartRow(ForwardCorrected(rates=RejudgedRates(negatives=1.0)), batch=signal_batch),
    "surprise": PartRow(SurprisalPenalty()),
    "outcome and surprise": PartRow(SumOfRewards(terms=[OutcomeReward(), SurprisalPenalty(coefficient=0.5)])),
    "envelope": PartRow(LengthEnvelope(least=0, low=2, high=4, most=7)),
    "envelope of a kind": PartRow(
        ConditionalReward(reward=LengthEnvelope(least=0, low=2, high=4, most=7), when=TaskKindIs(kinds=("b",)))
    ),
    "unit test": PartRow(UnitTest(), batch=text_batch),
    "one metric of a unit test": PartRow(UnitTest(metrics=["focal"]), batch=text_batch),
    "modelled": PartRow(LinearTokenReward(reward=OutcomeReward(), features=16), batch=few_tokens_batch),
}

SELECTS = {
    "without the first": PartRow(MaskThinkDecision(), keeps="decisions"),
    "without what follows a tag": PartRow(
        MaskThinkDecision(after=(1, 2), count=2), keeps="decisions", batch=token_batch
    ),
}
