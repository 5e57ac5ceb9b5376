"""Objectives: losses composed of a ratio, a trust region, weights, a reducer and regularisers."""

from polopt.objectives.aggregates import PromptMean, SequenceMean, SequenceSum, TokenMean
from polopt.objectives.compositions import (
    Branch,
    BranchedObjective,
    DecisionMetric,
    ObjectiveSchedule,
    Phase,
    WithMetrics,
    with_imitation,
)
from polopt.objectives.distillation import Distillation, SampledDistillation
from polopt.objectives.implicit import (
    DenoisingReward,
    GuidedLogRatioReward,
    ImplicitReward,
    LogOddsReward,
    LogProbReward,
    LogRatioReward,
    SumOfImplicitRewards,
)
from polopt.objectives.labelled import LabelledObjective
from polopt.objectives.links import (
    HingeLink,
    LogisticLink,
    PairLink,
    RegressionLink,
    SigmoidLink,
    SoftLink,
    SquaredLink,
)
from polopt.objectives.paired import EveryPair, Matching, PairedObjective
from polopt.objectives.parts import Aggregate, Objective, Ratio, Regulariser, SurrogateTerm, Weight
from polopt.objectives.ratios import AnchorRatio, OldPolicyRatio, ProductRatio, SequenceRatio, TokenRatio
from polopt.objectives.regression import RegressionObjective
from polopt.objectives.regularisers import EntropyBonus, EntropyTarget, ForwardKL, ReferenceKL, SamplerKL, ValueLoss
from polopt.objectives.surrogate import AuxiliaryLoss, Surrogate
from polopt.objectives.surrogate_terms import Clip, ClipWeight, PolicyGradient, SaturatedRatio, Unclipped
from polopt.objectives.weights import (
    ExponentialAdvantageWeight,
    ImportanceWeight,
    ProbabilityWeight,
    TruncatedImportance,
)

__all__ = [
    "Aggregate",
    "AnchorRatio",
    "AuxiliaryLoss",
    "Branch",
    "BranchedObjective",
    "Clip",
    "ClipWeight",
    "DecisionMetric",
    "DenoisingReward",
    "Distillation",
    "EntropyBonus",
    "EntropyTarget",
    "EveryPair",
    "ExponentialAdvantageWeight",
    "ForwardKL",
    "GuidedLogRatioReward",
    "HingeLink",
    "ImplicitReward",
    "ImportanceWeight",
    "LabelledObjective",
    "LogOddsReward",
    "LogProbReward",
    "LogRatioReward",
    "LogisticLink",
    "Matching",
    "Objective",
    "ObjectiveSchedule",
    "OldPolicyRatio",
    "PairLink",
    "PairedObjective",
    "Phase",
    "PolicyGradient",
    "ProbabilityWeight",
    "ProductRatio",
    "PromptMean",
    "Ratio",
    "ReferenceKL",
    "RegressionLink",
    "RegressionObjective",
    "Regulariser",
    "SampledDistillation",
    "SamplerKL",
    "SaturatedRatio",
    "SequenceMean",
    "SequenceRatio",
    "SequenceSum",
    "SigmoidLink",
    "SoftLink",
    "SquaredLink",
    "SumOfImplicitRewards",
    "Surrogate",
    "SurrogateTerm",
    "TokenMean",
    "TokenRatio",
    "TruncatedImportance",
    "Unclipped",
    "ValueLoss",
    "Weight",
    "WithMetrics",
    "with_imitation",
]
