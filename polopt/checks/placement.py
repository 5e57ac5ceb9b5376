"""Placement of a part for its checks: alone, or inside the plainest algorithm that has a place for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from polopt.algorithm import Algorithm
from polopt.checks import battery
from polopt.checks.plain_loss import PlainLoss
from polopt.credit import Baseline, Credit, GroupMean, LeaveOneOut, ModulatedAdvantage, RelativeAdvantage, Scale
from polopt.features.base import Grouping, Mask, RowFeature, TokenFeature
from polopt.features.groupings import Strata
from polopt.objectives import (
    Aggregate,
    Branch,
    BranchedObjective,
    ImplicitReward,
    Matching,
    Objective,
    PairedObjective,
    PairLink,
    Ratio,
    Regulariser,
    SequenceSum,
    Surrogate,
    SurrogateTerm,
    Unclipped,
    Weight,
)
from polopt.part import Part
from polopt.part_names import name_of
from polopt.rewards import Reward
from polopt.sampling import Rollouts, Select

Battery = Sequence[battery.Check | battery.Rule]

# Unbiased and of scale 1: decisions are summed, a row is compared with the others of its group.
SUMMED = Surrogate(trust=Unclipped(), aggregate=SequenceSum(length=1))
COMPARED = RelativeAdvantage(baseline=LeaveOneOut(), scale=None)

# Class of the part, its name in messages, and the function that places it in an objective.
IN_OBJECTIVES: tuple[tuple[type[Part], str, Callable[[Any, Surrogate], Objective]], ...] = (
    (Objective, "objective", lambda part, host: part),
    (SurrogateTerm, "trust region", lambda part, host: host.but(trust=part)),
    (Ratio, "ratio", lambda part, host: host.but(ratio=part)),
    (Weight, "weight", lambda part, host: host.but(weights=[part])),
    (Aggregate, "aggregate", lambda part, host: host.but(aggregate=part)),
    (Regulariser, "regulariser", lambda part, host: host.but(regularise=[part])),
    (ImplicitReward, "implicit reward", lambda part, host: PairedObjective(implicit=part)),
    (PairLink, "link of pairs", lambda part, host: PairedObjective(link=part)),
    (Matching, "matching", lambda part, host: PairedObjective(matching=part)),
    (Mask, "mask", lambda part, host: BranchedObjective(routes=[Branch(objective=host, rows=part)])),
)
IN_CREDIT: tuple[tuple[type[Part], str, Callable[[Any], Credit]], ...] = (
    (Credit, "credit", lambda part: part),
    (Baseline, "baseline", lambda part: RelativeAdvantage(baseline=part, scale=None)),
    (Scale, "scale", lambda part: RelativeAdvantage(scale=part)),
    (Grouping, "grouping", lambda part: RelativeAdvantage(baseline=GroupMean(within=part), scale=None)),
    (TokenFeature, "token feature", lambda part: ModulatedAdvantage(credit=COMPARED, times=part)),
    (RowFeature, "row feature", lambda part: RelativeAdvantage(baseline=GroupMean(within=Strata(by=part)), scale=None)),
)


@dataclasses.dataclass(frozen=True)
class PartKind:
    """A part in its place.

    word: the kind of part.
    whole: the part that the checks call.
    battery: the checks.
    sentence: the algorithm whose gradient the lab measures.
    """

    word: str
    whole: Part
    battery: Battery
    sentence: Algorithm


def places(subject: Part) -> list[PartKind]:
    """Places a part; for an algorithm, each of its parts.

    Raises:
        ValueError: a kind of part without a battery.
    """
    if isinstance(subject, Algorithm):
        parts = [subject.objective, subject.credit, subject.reward, *subject.select, *subject.sampling.filters]
        return [dataclasses.replace(place(part), sentence=subject) for part in parts]
    return [place(subject)]


def place(part: Part) -> PartKind:
    """Places one part. Raises ValueError for a kind of part without a battery."""
    if isinstance(part, PlainLoss):
        return PartKind("plain loss", part, battery.LOSS, sentence(objective=part.but(seed=None)))
    for kind, kind_name, put_in in IN_OBJECTIVES:
        if isinstance(part, kind):
            return PartKind(
                kind_name, put_in(part, Surrogate()), battery.OBJECTIVE, sentence(objective=put_in(part, SUMMED))
            )
    for kind, kind_name, put in IN_CREDIT:
        if isinstance(part, kind):
            return PartKind(kind_name, put(part), battery.CREDIT, sentence(credit=put(part)))
    if isinstance(part, Reward):
        return PartKind("reward", part, battery.REWARD, sentence(reward=part))
    if isinstance(part, Select):
        return PartKind("selection", part, battery.SELECT, sentence(select=[part]))
    known = [kind_name for _, kind_name, *_ in (*IN_OBJECTIVES, *IN_CREDIT)]
    raise ValueError(
        f"{name_of(type(part))} is no kind of part that can be checked: expected an algorithm, a reward, a selection, "
        f"or a {', '.join(known)}"
    )


def sentence(**parts: Any) -> Algorithm:
    """Returns the plainest unbiased algorithm, with these parts replaced."""
    return Algorithm(**{"sampling": Rollouts(group=4), "credit": COMPARED, "objective": SUMMED, **parts})
