"""Objectives: losses composed of a ratio, a trust region, weights, a reducer and regularisers."""

from polopt.objectives.aggregate import PromptMean, SequenceMean, SequenceSum, TokenMean
from polopt.objectives.branches import Branch, BranchedObjective
from polopt.objectives.distil import Distillation, SampledDistillation
from polopt.objectives.offpolicy import ExponentialAdvantageWeight, ForwardKL, ImportanceWeight, SamplerKL
from polopt.objectives.paired import (
    HingeLink,
    ImplicitReward,
    LogisticLink,
    LogProbReward,
    LogRatioReward,
    PairedObjective,
    PairLink,
    SquaredLink,
)
from polopt.objectives.parts import Aggregate, Objective, Ratio, Regulariser, SurrogateTerm, Weight
from polopt.objectives.phases import DecisionMetric, ObjectiveSchedule, Phase, WithMetrics
from polopt.objectives.ratio import OldPolicyRatio, SequenceRatio, TokenRatio
from polopt.objectives.regularise import EntropyBonus, EntropyTarget, ReferenceKL, ValueLoss
from polopt.objectives.surrogate import AuxiliaryLoss, Surrogate
from polopt.objectives.trust import Clip, ClipWeight, PolicyGradient, SaturatedRatio, Unclipped
from polopt.objectives.weight import ProbabilityWeight, TruncatedImportance

__all__ = [
    "Aggregate",
    "AuxiliaryLoss",
    "Branch",
    "BranchedObjective",
    "Clip",
    "ClipWeight",
    "DecisionMetric",
    "Distillation",
    "EntropyBonus",
    "EntropyTarget",
    "ExponentialAdvantageWeight",
    "ForwardKL",
    "HingeLink",
    "ImplicitReward",
    "ImportanceWeight",
    "LogProbReward",
    "LogRatioReward",
    "LogisticLink",
    "Objective",
    "ObjectiveSchedule",
    "OldPolicyRatio",
    "PairLink",
    "PairedObjective",
    "Phase",
    "PolicyGradient",
    "ProbabilityWeight",
    "PromptMean",
    "Ratio",
    "ReferenceKL",
    "Regulariser",
    "SampledDistillation",
    "SamplerKL",
    "SaturatedRatio",
    "SequenceMean",
    "SequenceRatio",
    "SequenceSum",
    "SquaredLink",
    "Surrogate",
    "SurrogateTerm",
    "TokenMean",
    "TokenRatio",
    "TruncatedImportance",
    "Unclipped",
    "ValueLoss",
    "Weight",
    "WithMetrics",
]
