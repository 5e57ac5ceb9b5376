"""Credit assignment: advantages of decisions from rewards."""

from polopt.credit.baselines import (
    ConstantBaseline,
    GreedyReturn,
    GroupMean,
    LeaveOneOut,
    MovingAverage,
    PromptValue,
)
from polopt.credit.estimators import GAE, ConstantAdvantage, ReferencePoint, RelativeAdvantage, RewardToGo
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.credit.scales import GroupStd
from polopt.credit.states import EdgeMeanAdvantage, SharedPrefixAdvantage, StateRelativeAdvantage
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
    "EdgeMeanAdvantage",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "LeaveOneOut",
    "ModulatedAdvantage",
    "MovingAverage",
    "PromptValue",
    "ReferencePoint",
    "RelativeAdvantage",
    "RewardToGo",
    "Scale",
    "SharedPrefixAdvantage",
    "StateRelativeAdvantage",
    "WeightedAdvantage",
    "WeightedSum",
    "WhitenedAdvantage",
]
