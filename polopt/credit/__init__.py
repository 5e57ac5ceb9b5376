"""Credit assignment: advantages of decisions from rewards."""

from polopt.credit.across import AcrossGroups
from polopt.credit.beta import BetaScale
from polopt.credit.confidence import Confidence, SemanticEntropy
from polopt.credit.consistency import ParaphraseConsistency, SameMeaning, TermEntropy
from polopt.credit.demonstrated_rows import AnchoredDemonstrations, IncludeDemonstrations
from polopt.credit.groupings import (
    DecisionCount,
    FieldMeasure,
    MeanEntropy,
    SameKind,
    SamePrompt,
    SameTask,
    Strata,
    TurnCount,
    WholeBatch,
)
from polopt.credit.half_groups import HalfGroupAdvantage
from polopt.credit.measures import AnswerEntropy, LogisticMeasure, SuccessRate
from polopt.credit.modulated import (
    CentredAdvantage,
    ModulatedAdvantage,
    RelativeSurprisal,
    TurnCertainty,
    UncertaintyDecay,
)
from polopt.credit.parts import Baseline, Credit, Grouping, Measure, Scale, Signal
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
    "AnswerEntropy",
    "Baseline",
    "BetaScale",
    "BoundedAdvantage",
    "CentredAdvantage",
    "ClippedAdvantage",
    "Confidence",
    "ConstantAdvantage",
    "Credit",
    "DecisionCount",
    "DecoupledTargets",
    "FieldMeasure",
    "GreedyReturn",
    "GroupMean",
    "GroupStd",
    "Grouping",
    "HalfGroupAdvantage",
    "IncludeDemonstrations",
    "LearnedDiscount",
    "LeaveOneOut",
    "LogisticMeasure",
    "MeanEntropy",
    "Measure",
    "ModulatedAdvantage",
    "MovingAverage",
    "MultiAdvantage",
    "NormalScores",
    "ParaphraseConsistency",
    "RelativeAdvantage",
    "RelativeSurprisal",
    "ReturnsPlusMeasures",
    "RewardToGo",
    "SameKind",
    "SameMeaning",
    "SamePrompt",
    "SameTask",
    "Scale",
    "SegmentAdvantage",
    "SemanticEntropy",
    "ShrunkMean",
    "Signal",
    "StandardisedReturns",
    "Strata",
    "SuccessRate",
    "TermEntropy",
    "TurnAdvantage",
    "TurnCertainty",
    "TurnCount",
    "UncertaintyDecay",
    "WeightedAdvantage",
    "WeightedSum",
    "WhitenedAdvantage",
    "WholeBatch",
    "trust_in_mean",
]
