"""Rows of the battery: selections that know the credit, or that draw, and credit that knows more than the reward."""

from __future__ import annotations

from typing import Any

from battery import Row

import polopt as po
from polopt.credit import (
    GAE,
    Centred,
    Clarity,
    Confidence,
    Faded,
    GroupMean,
    MeanEntropy,
    Modulated,
    Relative,
    SemanticEntropy,
    Strata,
    Surprise,
)
from polopt.sampling import MostVaried, Ranked, Resampled, TopDecisions
from polopt.schedules import Schedule


def worth(experience: po.Experience) -> list[Any]:
    """Rows of one group and outcome stand for each other."""
    return list(zip(experience.group.tolist(), experience.outcome.tolist(), strict=True))


SELECTS = {
    "most varied": Row(MostVaried(share=0.5), keeps="share"),
    "most varied of each group": Row(MostVaried(share=0.6, within="group"), keeps="share"),
    "most varied, more and more": Row(MostVaried(share=Schedule(knots=[(0, 0.3), (4, 1.0)])), keeps="share"),
    "top decisions": Row(TopDecisions(share=0.3), keeps="decisions"),
    "top decisions of each row": Row(TopDecisions(share=0.3, within="row"), keeps="decisions"),
    "top decisions, more and more": Row(TopDecisions(share=Schedule(knots=[(0, 0.3), (4, 1.0)])), keeps="decisions"),
    "best and worst": Row(Ranked(best=1, worst=1), key=worth),
    "best and another": Row(Ranked(best=1, others=1), key=worth),
    "two by chance": Row(Ranked(best=0, others=2, seed=7), key=worth),
    "resampled by power": Row(Resampled(), key=worth, keeps="repeats"),
    "resampled extremes": Row(Resampled(weights="extremes", seed=1), key=worth, keeps="repeats"),
    "resampled best": Row(Resampled(weights="best"), key=worth, keeps="repeats"),
}

CENTRED = Relative(scale=None)
CREDITS = {
    "semantic entropy": Row(Modulated(credit=CENTRED, times=Faded(by=SemanticEntropy(), strength=0.3)), relative=True),
    "semantic entropy, exponential": Row(
        Modulated(credit=CENTRED, times=Faded(by=SemanticEntropy(weigh="count"), shape="exponential")), relative=True
    ),
    "semantic entropy, focal": Row(
        Modulated(credit=CENTRED, times=Faded(by=SemanticEntropy(weigh="sequence"), strength=0.1, shape="focal")),
        relative=True,
    ),
    "faded by token entropy": Row(Modulated(credit=GAE(), times=Faded(by=MeanEntropy(), strength=0.2))),
    "clear turns": Row(Modulated(credit=Relative(), times=Clarity()), relative=True),
    "clear turns ahead": Row(
        Centred(
            credit=Modulated(credit=Relative(), times=Clarity(), plus=Clarity(turn="next", weight=0.1)), unit="turn"
        )
    ),
    "surprise": Row(Modulated(credit=Relative(), plus=Surprise(solved=1.0))),
    "surprise within the group": Row(Modulated(credit=Relative(), plus=Surprise(than="group"), limit=1.0)),
    "centred": Row(Centred(credit=GAE())),
    "strata by confidence": Row(Relative(baseline=GroupMean(within=Strata(by=Confidence(share=0.5))), scale=None)),
}
