"""How far to move: losses made of ratio, trust region, weights, reducer and regularisers."""

from polopt.objectives.aggregate import PromptMean, SequenceMean, SequenceSum, TokenMean
from polopt.objectives.balanced import BalancedClip
from polopt.objectives.band import EntropyBand
from polopt.objectives.covariance import ClipCov, KLCov
from polopt.objectives.distil import Distil, DistilSampled, TeacherCertainty
from polopt.objectives.entropy import EntropyAdvantage, EntropyClip, EntropyLevel, SteadyEntropy
from polopt.objectives.guarded import Guarded, PerTime
from polopt.objectives.hybrid import HybridClip, NormalisedEntropy
from polopt.objectives.mixture import Mixture, log_mixture
from polopt.objectives.mixtures import PerDraw, SoftTargets
from polopt.objectives.negative import NegativeAware
from polopt.objectives.offpolicy import ExpAdvantage, ForwardKL, Gate, Importance, SamplerKL
from polopt.objectives.one_token import OneToken
from polopt.objectives.parts import Aggregate, Objective, Ratio, Regulariser, Trust, Weight
from polopt.objectives.phases import Gauge, LayerEntropy, Phase, Phased, Watched
from polopt.objectives.ratio import LayerRatio, Proximal, Sequence, Token, Unsampled
from polopt.objectives.regularise import Entropy, EntropyTarget, ReferenceKL, ValueLoss
from polopt.objectives.routes import Demonstrated, Ended, Marked, Route, Routed, Rows, Solved, Taught
from polopt.objectives.surrogate import Auxiliary, Surrogate
from polopt.objectives.trust import CentredClip, Clip, ClipWeight, Score, Shaped, Unlimited, ValueRegression
from polopt.objectives.voices import EachVoice
from polopt.objectives.weight import Likely, TruncatedImportance, Undecided

__all__ = [
    "Aggregate",
    "Auxiliary",
    "BalancedClip",
    "CentredClip",
    "Clip",
    "ClipCov",
    "ClipWeight",
    "Demonstrated",
    "Distil",
    "DistilSampled",
    "EachVoice",
    "Ended",
    "Entropy",
    "EntropyAdvantage",
    "EntropyBand",
    "EntropyClip",
    "EntropyLevel",
    "EntropyTarget",
    "ExpAdvantage",
    "ForwardKL",
    "Gate",
    "Gauge",
    "Guarded",
    "HybridClip",
    "Importance",
    "KLCov",
    "LayerEntropy",
    "LayerRatio",
    "Likely",
    "Marked",
    "Mixture",
    "NegativeAware",
    "NormalisedEntropy",
    "Objective",
    "OneToken",
    "PerDraw",
    "PerTime",
    "Phase",
    "Phased",
    "PromptMean",
    "Proximal",
    "Ratio",
    "ReferenceKL",
    "Regulariser",
    "Route",
    "Routed",
    "Rows",
    "SamplerKL",
    "Score",
    "Sequence",
    "SequenceMean",
    "SequenceSum",
    "Shaped",
    "SoftTargets",
    "Solved",
    "SteadyEntropy",
    "Surrogate",
    "Taught",
    "TeacherCertainty",
    "Token",
    "TokenMean",
    "TruncatedImportance",
    "Trust",
    "Undecided",
    "Unlimited",
    "Unsampled",
    "ValueLoss",
    "ValueRegression",
    "Watched",
    "Weight",
    "log_mixture",
]
