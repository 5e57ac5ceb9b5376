"""Rows of the battery: credit."""

from __future__ import annotations

from batches import SampleBatch, random_batch
from battery import PartRow
from row_batches import mismatched_batch, state_batch, text_batch

from polopt.credit import (
    GAE,
    ClippedAdvantage,
    ConstantAdvantage,
    ConstantBaseline,
    EdgeMeanAdvantage,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    PromptValue,
    ReferencePoint,
    RelativeAdvantage,
    RewardToGo,
    SharedPrefixAdvantage,
    StateRelativeAdvantage,
    WeightedAdvantage,
    WeightedSum,
    WhitenedAdvantage,
)
from polopt.features.groupings import SameMeaning, SameTask, Strata, WholeBatch
from polopt.features.rows import AnswerEntropy, Confidence, DecisionCount, Logistic, MeanEntropy, RowField, TurnCount
from polopt.schedules import Schedule

AGREEMENT = Logistic(of=AnswerEntropy(base=2.718281828), slope=5.0, centre=0.4)
BY_TOKEN = RelativeAdvantage(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))


def same_task_batch(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """A random batch in which groups 7 and 3 are of one task."""
    batch = random_batch(seed, B, T, clean)
    return batch.replace(extras={"index": batch.experience.group % 4})


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
    "constant baseline": PartRow(RelativeAdvantage(baseline=ConstantBaseline(value=0.5), scale=None)),
    "moving average": PartRow(RelativeAdvantage(baseline=MovingAverage(decay=0.5), scale=None)),
    "greedy": PartRow(RelativeAdvantage(baseline=GreedyReturn(), scale=None)),
    "value of the prompt": PartRow(RelativeAdvantage(baseline=PromptValue(), scale=None)),
    "nothing": PartRow(RelativeAdvantage(baseline=None, scale=None)),
    "reference point": PartRow(ReferencePoint(), batch=mismatched_batch),
    "constant": PartRow(ConstantAdvantage(value=-2.0)),
    "to go, by turn": PartRow(RewardToGo(gamma=0.9, unit="turn")),
    "within states": PartRow(StateRelativeAdvantage(), batch=state_batch),
    "within histories": PartRow(
        StateRelativeAdvantage(depth=3, power=0.5, normalise=False, base=RelativeAdvantage(), within=WholeBatch()),
        batch=state_batch,
    ),
    "among all turns": PartRow(StateRelativeAdvantage(depth=0, least=0)),
    "shared prefixes": PartRow(SharedPrefixAdvantage(), batch=state_batch),
    "shared prefixes of all": PartRow(
        SharedPrefixAdvantage(credit=RewardToGo(), within=WholeBatch()), batch=state_batch
    ),
    "shared steps": PartRow(EdgeMeanAdvantage(), batch=state_batch),
    "shared steps with a past": PartRow(
        EdgeMeanAdvantage(credit=RewardToGo(), window=1, within=WholeBatch()), batch=state_batch
    ),
    "to go": PartRow(RewardToGo()),
    "discounted to go": PartRow(RewardToGo(gamma=0.9)),
    "gae": PartRow(GAE(gamma=0.9, lam=0.8)),
    "gae, lam 1": PartRow(GAE(lam=1.0)),
    "whitened": PartRow(WhitenedAdvantage(credit=RelativeAdvantage())),
    "whitened constant": PartRow(WhitenedAdvantage(credit=ConstantAdvantage(value=0.1)), relative=True),
    "whitened gae": PartRow(WhitenedAdvantage(credit=GAE())),
    "clipped": PartRow(ClippedAdvantage(credit=RelativeAdvantage(), limit=0.5), relative=True),
    "clipped gae": PartRow(ClippedAdvantage(credit=GAE(), limit=0.1)),
    "by token": PartRow(BY_TOKEN, relative=True),
    "by token, everyone's": PartRow(
        RelativeAdvantage(baseline=GroupMean(unit="token", within=WholeBatch()), scale=GroupStd(unit="token")),
        relative=True,
    ),
    "weighed by row": PartRow(WeightedSum(shares=[WeightedAdvantage(credit=RelativeAdvantage(), weight=AGREEMENT)])),
    "extended gae": PartRow(GAE(lam=0.8, open="last")),
    "extended gae, limits as ends": PartRow(GAE(gamma=0.9, cut="zero", open="last")),
    "of one meaning": PartRow(
        RelativeAdvantage(baseline=GroupMean(within=SameMeaning()), scale=GroupStd(within=SameMeaning())),
        batch=text_batch,
    ),
    "strata by confidence": PartRow(
        RelativeAdvantage(baseline=GroupMean(within=Strata(by=Confidence(share=0.5))), scale=None)
    ),
    "within a task": PartRow(
        RelativeAdvantage(baseline=GroupMean(within=SameTask()), scale=GroupStd(within=SameTask())),
        relative=True,
        batch=same_task_batch,
    ),
}
