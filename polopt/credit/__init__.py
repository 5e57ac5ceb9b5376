"""Which decision earned it: advantages from rewards."""

from polopt.credit.groupings import Everyone, Length, MeanEntropy, Noted, Prompt, Strata, Turns
from polopt.credit.parts import Baseline, Credit, Grouping, Measure, Scale
from polopt.credit.relative import (
    Blend,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    Relative,
    Share,
)
from polopt.credit.stepwise import GAE, Constant, RewardToGo, Whitened

__all__ = [
    "GAE",
    "Baseline",
    "Blend",
    "Constant",
    "Credit",
    "Everyone",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "Grouping",
    "LeaveOneOut",
    "Length",
    "MeanEntropy",
    "Measure",
    "MovingAverage",
    "Noted",
    "Prompt",
    "Relative",
    "RewardToGo",
    "Scale",
    "Share",
    "Strata",
    "Turns",
    "Whitened",
]
