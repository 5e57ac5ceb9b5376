"""Objectives: losses composed of a ratio, a trust region, weights, a reducer and regularisers."""

from polopt.objectives.aggregate import PromptMean, SequenceMean, SequenceSum, TokenMean
from polopt.objectives.balanced import BalancedClip
from polopt.objectives.band import EntropyBand
from polopt.objectives.branches import Branch, BranchedObjective
from polopt.objectives.covariance import ClipCov, KLCov
from polopt.objectives.distil import Distillation, SampledDistillation, TeacherCertainty
from polopt.objectives.entropy import EntropyAdvantage, EntropyClip, EntropyLevel, STEERWeight
from polopt.objectives.grpo_guard import GRPOGuardRatio, InverseTimeStep
from polopt.objectives.hybrid import HybridClip, NormalisedEntropy
from polopt.objectives.mixture import MixtureRatio, log_mixture
from polopt.objectives.mixtures import DrawMeanRatio, SoftTargets
from polopt.objectives.multi_advantage import PerAdvantageSurrogate
from polopt.objectives.nft import NFTTerm
from polopt.objectives.offpolicy import ExponentialAdvantageWeight, ForwardKL, ImportanceWeight, RatioGate, SamplerKL
from polopt.objectives.one_token import OneToken
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
from polopt.objectives.phases import DecisionMetric, LayerEntropy, ObjectiveSchedule, Phase, WithMetrics
from polopt.objectives.ratio import LayerRatio, OldPolicyRatio, RatioExceptDemonstrations, SequenceRatio, TokenRatio
from polopt.objectives.regularise import EntropyBonus, EntropyTarget, ReferenceKL, ValueLoss
from polopt.objectives.surrogate import AuxiliaryLoss, Surrogate
from polopt.objectives.trust import (
    CentredClip,
    Clip,
    ClipWeight,
    PolicyGradient,
    SaturatedRatio,
    Unclipped,
    ValueRegression,
)
from polopt.objectives.weight import ProbabilityWeight, TruncatedImportance, UncertaintyWeight

__all__ = [
    "Aggregate",
    "AuxiliaryLoss",
    "BalancedClip",
    "Branch",
    "BranchedObjective",
    "CentredClip",
    "Clip",
    "ClipCov",
    "ClipWeight",
    "DecisionMetric",
    "Distillation",
    "DrawMeanRatio",
    "EntropyAdvantage",
    "EntropyBand",
    "EntropyBonus",
    "EntropyClip",
    "EntropyLevel",
    "EntropyTarget",
    "ExponentialAdvantageWeight",
    "ForwardKL",
    "GRPOGuardRatio",
    "HingeLink",
    "HybridClip",
    "ImplicitReward",
    "ImportanceWeight",
    "InverseTimeStep",
    "KLCov",
    "LayerEntropy",
    "LayerRatio",
    "LogProbReward",
    "LogRatioReward",
    "LogisticLink",
    "MixtureRatio",
    "NFTTerm",
    "NormalisedEntropy",
    "Objective",
    "ObjectiveSchedule",
    "OldPolicyRatio",
    "OneToken",
    "PairLink",
    "PairedObjective",
    "PerAdvantageSurrogate",
    "Phase",
    "PolicyGradient",
    "ProbabilityWeight",
    "PromptMean",
    "Ratio",
    "RatioExceptDemonstrations",
    "RatioGate",
    "ReferenceKL",
    "Regulariser",
    "STEERWeight",
    "SampledDistillation",
    "SamplerKL",
    "SaturatedRatio",
    "SequenceMean",
    "SequenceRatio",
    "SequenceSum",
    "SoftTargets",
    "SquaredLink",
    "Surrogate",
    "SurrogateTerm",
    "TeacherCertainty",
    "TokenMean",
    "TokenRatio",
    "TruncatedImportance",
    "UncertaintyWeight",
    "Unclipped",
    "ValueLoss",
    "ValueRegression",
    "Weight",
    "WithMetrics",
    "log_mixture",
]
