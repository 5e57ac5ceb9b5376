"""Credit assignment: advantages of decisions from rewards."""

from polopt.credit.across import AcrossGroups
from polopt.credit.beta import BetaScale
from polopt.credit.confidence import SemanticEntropy
from polopt.credit.consistency import ParaphraseConsistency, TermEntropy
from polopt.credit.demonstrated_rows import AnchoredDemonstrations, IncludeDemonstrations
from polopt.credit.half_groups import HalfGroupAdvantage
from polopt.credit.modulated import (
    CentredAdvantage,
    ModulatedAdvantage,
    RelativeSurprisal,
    TurnCertainty,
    UncertaintyDecay,
)
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.credit.ranks import NormalScores
from polopt.credit.relative import (
    BoundedAdvantage,
    GreedyReturn,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    MultiAdvantage,
    RelativeAdvantage,
    WeightedAdvantage,
    WeightedSum,
)
from polopt.credit.revalued import ReturnsPlusMeasures, StandardisedReturns
from polopt.credit.segments import SegmentAdvantage
from polopt.credit.shrunk import ShrunkMean, trust_in_mean
from polopt.credit.stepwise import (
    GAE,
    ClippedAdvantage,
    ConstantAdvantage,
    DecoupledTargets,
    LearnedDiscount,
    RewardToGo,
    WhitenedAdvantage,
)
from polopt.credit.turns import TurnAdvantage

__all__ = [
    "GAE",
    "AcrossGroups",
    "AnchoredDemonstrations",
    "Baseline",
    "BetaScale",
    "BoundedAdvantage",
    "CentredAdvantage",
    "ClippedAdvantage",
    "ConstantAdvantage",
    "Credit",
    "DecoupledTargets",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "HalfGroupAdvantage",
    "IncludeDemonstrations",
    "LearnedDiscount",
    "LeaveOneOut",
    "ModulatedAdvantage",
    "MovingAverage",
    "MultiAdvantage",
    "NormalScores",
    "ParaphraseConsistency",
    "RelativeAdvantage",
    "RelativeSurprisal",
    "ReturnsPlusMeasures",
    "RewardToGo",
    "Scale",
    "SegmentAdvantage",
    "SemanticEntropy",
    "ShrunkMean",
    "StandardisedReturns",
    "TermEntropy",
    "TurnAdvantage",
    "TurnCertainty",
    "UncertaintyDecay",
    "WeightedAdvantage",
    "WeightedSum",
    "WhitenedAdvantage",
    "trust_in_mean",
]
