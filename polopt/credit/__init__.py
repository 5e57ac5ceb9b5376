"""Credit assignment: advantages of decisions from rewards."""

from polopt.credit.baselines import ConstantBaseline, GreedyReturn, GroupMean, LeaveOneOut, MovingAverage
from polopt.credit.estimators import GAE, ConstantAdvantage, ReferencePoint, RelativeAdvantage, RewardToGo
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.credit.scales import GroupStd
from polopt.credit.wrappers import (
    ClippedAdvantage,
    ModulatedAdvantage,
    WeightedAdvantage,
    WeightedSum,
    WhitenedAdvantage,
)

__all__ = [
    "GAE",
    "Baseline",
    "ClippedAdvantage",
    "ConstantAdvantage",
    "ConstantBaseline",
    "Credit",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "LeaveOneOut",
    "ModulatedAdvantage",
    "MovingAverage",
    "ReferencePoint",
    "RelativeAdvantage",
    "RewardToGo",
    "Scale",
    "WeightedAdvantage",
    "WeightedSum",
    "WhitenedAdvantage",
]
