"""Which decision earned it: advantages from rewards."""

from polopt.credit.parts import Baseline, Credit, Scale
from polopt.credit.relative import (
    BatchMean,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    Relative,
)
from polopt.credit.stepwise import GAE, Constant, RewardToGo, Whitened

__all__ = [
    "GAE",
    "Baseline",
    "BatchMean",
    "Constant",
    "Credit",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "LeaveOneOut",
    "MovingAverage",
    "Relative",
    "RewardToGo",
    "Scale",
    "Whitened",
]
