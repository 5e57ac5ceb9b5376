"""Rows of the battery: losses of preferences."""

from __future__ import annotations

from battery import PartRow

from polopt.features.masks import IsCorrect
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    HingeLink,
    LogisticLink,
    LogProbReward,
    LogRatioReward,
    PairedObjective,
    ReferenceKL,
    SequenceMean,
    SquaredLink,
    Surrogate,
)

OBJECTIVES = {
    "dpo": PartRow(PairedObjective()),
    "conservative dpo": PartRow(PairedObjective(link=LogisticLink(label_smoothing=0.1))),
    "ipo": PartRow(PairedObjective(implicit=LogRatioReward(scale=1.0), link=SquaredLink(target=5.0))),
    "ipo, means": PartRow(
        PairedObjective(implicit=LogRatioReward(scale=1.0, decisions="mean"), link=SquaredLink(target=5.0))
    ),
    "dpo from another policy": PartRow(PairedObjective(implicit=LogRatioReward(anchor="guide"))),
    "dpo near another policy": PartRow(PairedObjective(regularise=[ReferenceKL(anchor="guide")])),
    "slic": PartRow(PairedObjective(implicit=LogProbReward(scale=0.2, decisions="sum"), link=HingeLink())),
    "simpo": PartRow(PairedObjective(implicit=LogProbReward(), link=LogisticLink(shift=0.5))),
    "dpo with a distance": PartRow(PairedObjective(regularise=[ReferenceKL()], aggregate=SequenceMean())),
    "dpo beside a surrogate": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=PairedObjective(), weight=0.5),
                Branch(objective=Surrogate(trust=Clip()), rows=IsCorrect()),
            ],
            count="all",
        )
    ),
}
