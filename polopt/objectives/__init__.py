"""How far to move: losses made of ratio, trust region, weights, reducer and regularisers."""

from polopt.objectives.aggregate import SequenceMean, SequenceSum, TokenMean
from polopt.objectives.band import EntropyBand
from polopt.objectives.parts import Aggregate, Objective, Ratio, Regulariser, Trust, Weight
from polopt.objectives.ratio import Proximal, Sequence, Token
from polopt.objectives.regularise import Entropy, ReferenceKL, ValueLoss
from polopt.objectives.routes import Demonstrated, Route, Routed, Rows, Solved
from polopt.objectives.surrogate import Surrogate
from polopt.objectives.trust import Clip, ClipWeight, Score, Unlimited
from polopt.objectives.voices import EachVoice
from polopt.objectives.weight import TruncatedImportance

__all__ = [
    "Aggregate",
    "Clip",
    "ClipWeight",
    "Demonstrated",
    "EachVoice",
    "Entropy",
    "EntropyBand",
    "Objective",
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
    "Token",
    "TokenMean",
    "TruncatedImportance",
    "Trust",
    "Unlimited",
    "ValueLoss",
    "Weight",
]
