"""Which decision earned it: advantages from rewards."""

from polopt.credit.across import AcrossGroups
from polopt.credit.beta import BetaScale
from polopt.credit.confidence import Confidence, SemanticEntropy
from polopt.credit.consistency import Informative, Meaning, Steady
from polopt.credit.cuts import BetweenCuts
from polopt.credit.groupings import Everyone, Kind, Length, MeanEntropy, Noted, Prompt, Strata, Task, Turns
from polopt.credit.halves import Halves
from polopt.credit.measures import AnswerEntropy, Logistic, SuccessRate
from polopt.credit.modulated import Centred, Clarity, Faded, Modulated, Surprise
from polopt.credit.parts import Baseline, Credit, Grouping, Measure, Scale, Signal
from polopt.credit.ranks import NormalScores
from polopt.credit.relative import (
    Blend,
    Bounded,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    Relative,
    Share,
    Voices,
)
from polopt.credit.revalued import Plus, Standardised
from polopt.credit.shown import Anchored, Together
from polopt.credit.shrunk import Shrunk, trust_in_mean
from polopt.credit.stepwise import GAE, Clipped, Constant, LearnedDiscount, RewardToGo, Whitened
from polopt.credit.turns import ByTurn

__all__ = [
    "GAE",
    "AcrossGroups",
    "Anchored",
    "AnswerEntropy",
    "Baseline",
    "BetaScale",
    "BetweenCuts",
    "Blend",
    "Bounded",
    "ByTurn",
    "Centred",
    "Clarity",
    "Clipped",
    "Confidence",
    "Constant",
    "Credit",
    "Everyone",
    "Faded",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "Grouping",
    "Halves",
    "Informative",
    "Kind",
    "LearnedDiscount",
    "LeaveOneOut",
    "Length",
    "Logistic",
    "MeanEntropy",
    "Meaning",
    "Measure",
    "Modulated",
    "MovingAverage",
    "NormalScores",
    "Noted",
    "Plus",
    "Prompt",
    "Relative",
    "RewardToGo",
    "Scale",
    "SemanticEntropy",
    "Share",
    "Shrunk",
    "Signal",
    "Standardised",
    "Steady",
    "Strata",
    "SuccessRate",
    "Surprise",
    "Task",
    "Together",
    "Turns",
    "Voices",
    "Whitened",
    "trust_in_mean",
]
