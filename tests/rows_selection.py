"""Rows of the battery: selections that know the credit, or that draw, and credit that knows more than the reward."""

from __future__ import annotations

from typing import Any

from battery import Row

import polopt as po
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
