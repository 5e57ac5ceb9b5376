"""How far to move: losses made of ratio, trust region, weights, reducer and regularisers."""

from polopt.objectives.aggregate import SequenceMean, SequenceSum, TokenMean
from polopt.objectives.distil import Distil, DistilSampled, TeacherCertainty
from polopt.objectives.parts import Aggregate, Objective, Ratio, Regulariser, Trust, Weight
from polopt.objectives.phases import Gauge, LayerEntropy, Phase, Phased, Watched
from polopt.objectives.ratio import LayerRatio, Proximal, Sequence, Token
from polopt.objectives.regularise import Entropy, ReferenceKL, ValueLoss
from polopt.objectives.routes import Demonstrated, Route, Routed, Rows, Solved, Taught
from polopt.objectives.surrogate import Surrogate
from polopt.objectives.trust import Clip, ClipWeight, Score, Unlimited, ValueRegression
from polopt.objectives.weight import TruncatedImportance

__all__ = [
    "Aggregate",
    "Clip",
    "ClipWeight",
    "Demonstrated",
    "Distil",
    "DistilSampled",
    "Entropy",
    "Gauge",
    "LayerEntropy",
    "LayerRatio",
    "Objective",
    "Phase",
    "Phased",
    "Proximal",
    "Ratio",
    "ReferenceKL",
    "Regulariser",
    "Route",
    "Routed",
    "Rows",
    "Score",
    "Sequence",
    "SequenceMean",
    "SequenceSum",
    "Solved",
    "Surrogate",
    "Taught",
    "TeacherCertainty",
    "Token",
    "TokenMean",
    "TruncatedImportance",
    "Trust",
    "Unlimited",
    "ValueLoss",
    "ValueRegression",
    "Watched",
    "Weight",
]
