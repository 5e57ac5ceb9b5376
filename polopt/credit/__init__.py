"""Credit assignment: advantages of decisions from rewards."""

from polopt.credit.modulated import ModulatedAdvantage
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.credit.relative import (
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    RelativeAdvantage,
    WeightedAdvantage,
    WeightedSum,
)
from polopt.credit.stepwise import GAE, ClippedAdvantage, ConstantAdvantage, RewardToGo, WhitenedAdvantage

__all__ = [
    "GAE",
    "Baseline",
    "ClippedAdvantage",
    "ConstantAdvantage",
    "Credit",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "LeaveOneOut",
    "ModulatedAdvantage",
    "MovingAverage",
    "RelativeAdvantage",
    "RewardToGo",
    "Scale",
    "WeightedAdvantage",
    "WeightedSum",
    "WhitenedAdvantage",
]
