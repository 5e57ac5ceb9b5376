"""Rows of the battery: selections that know the credit, or that draw, and credit that knows more than the reward."""

from __future__ import annotations

from typing import Any

from battery import PartRow

import polopt as po
from polopt.credit import GAE, GroupMean, ModulatedAdvantage, RelativeAdvantage
from polopt.features.groupings import Strata
from polopt.features.rows import Confidence, MeanEntropy
from polopt.methods.d3s import HighestVariance, TopDecisions
from polopt.methods.empg import CentredAdvantage, TurnCertainty
from polopt.methods.pf_ppo import RankedRows
from polopt.methods.progrpo import RelativeSurprisal
from polopt.methods.seed_grpo import SemanticEntropy, UncertaintyDecay
from polopt.sampling import ResampledRows
from polopt.schedules import Schedule


def worth(experience: po.Experience) -> list[Any]:
    """Rows of one group and outcome stand for each other."""
    return list(zip(experience.group.tolist(), experience.outcome.tolist(), strict=True))


SELECTS = {
    "most varied": PartRow(HighestVariance(share=0.5), keeps="share"),
    "most varied of each group": PartRow(HighestVariance(share=0.6, within="group"), keeps="share"),
    "most varied, more and more": PartRow(HighestVariance(share=Schedule(knots=[(0, 0.3), (4, 1.0)])), keeps="share"),
    "top decisions": PartRow(TopDecisions(share=0.3), keeps="decisions"),
    "top decisions of each row": PartRow(TopDecisions(share=0.3, within="row"), keeps="decisions"),
    "top decisions, more and more": PartRow(
        TopDecisions(share=Schedule(knots=[(0, 0.3), (4, 1.0)])), keeps="decisions"
    ),
    "best and worst": PartRow(RankedRows(best=1, worst=1), key=worth),
    "best and another": PartRow(RankedRows(best=1, others=1), key=worth),
    "two by chance": PartRow(RankedRows(best=0, others=2, seed=7), key=worth),
    "resampled by power": PartRow(ResampledRows(), key=worth, keeps="repeats"),
    "resampled extremes": PartRow(ResampledRows(weights="extremes", seed=1), key=worth, keeps="repeats"),
    "resampled best": PartRow(ResampledRows(weights="best"), key=worth, keeps="repeats"),
}

CENTRED = RelativeAdvantage(scale=None)
CREDITS = {
    "semantic entropy": PartRow(
        ModulatedAdvantage(credit=CENTRED, times=UncertaintyDecay(by=SemanticEntropy(), strength=0.3)), relative=True
    ),
    "semantic entropy, exponential": PartRow(
        ModulatedAdvantage(
            credit=CENTRED, times=UncertaintyDecay(by=SemanticEntropy(weigh="count"), shape="exponential")
        ),
        relative=True,
    ),
    "semantic entropy, focal": PartRow(
        ModulatedAdvantage(
            credit=CENTRED, times=UncertaintyDecay(by=SemanticEntropy(weigh="sequence"), strength=0.1, shape="focal")
        ),
        relative=True,
    ),
    "faded by token entropy": PartRow(
        ModulatedAdvantage(credit=GAE(), times=UncertaintyDecay(by=MeanEntropy(), strength=0.2))
    ),
    "clear turns": PartRow(ModulatedAdvantage(credit=RelativeAdvantage(), times=TurnCertainty()), relative=True),
    "clear turns ahead": PartRow(
        CentredAdvantage(
            credit=ModulatedAdvantage(
                credit=RelativeAdvantage(), times=TurnCertainty(), plus=TurnCertainty(turn="next", weight=0.1)
            ),
            unit="turn",
        )
    ),
    "surprise": PartRow(ModulatedAdvantage(credit=RelativeAdvantage(), plus=RelativeSurprisal(solved=1.0))),
    "surprise within the group": PartRow(
        ModulatedAdvantage(credit=RelativeAdvantage(), plus=RelativeSurprisal(than="group"), limit=1.0)
    ),
    "centred": PartRow(CentredAdvantage(credit=GAE())),
    "strata by confidence": PartRow(
        RelativeAdvantage(baseline=GroupMean(within=Strata(by=Confidence(share=0.5))), scale=None)
    ),
}
