"""Which decision earned it: advantages from rewards."""

from polopt.credit.confidence import Confidence, SemanticEntropy
from polopt.credit.groupings import Everyone, Length, MeanEntropy, Noted, Prompt, Strata, Turns
from polopt.credit.modulated import Centred, Clarity, Faded, Modulated, Surprise
from polopt.credit.parts import Baseline, Credit, Grouping, Measure, Scale, Signal
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
    "Centred",
    "Clarity",
    "Confidence",
    "Constant",
    "Credit",
    "Everyone",
    "Faded",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "Grouping",
    "LeaveOneOut",
    "Length",
    "MeanEntropy",
    "Measure",
    "Modulated",
    "MovingAverage",
    "Noted",
    "Prompt",
    "Relative",
    "RewardToGo",
    "Scale",
    "SemanticEntropy",
    "Share",
    "Signal",
    "Strata",
    "Surprise",
    "Turns",
    "Whitened",
]
