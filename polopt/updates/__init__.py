"""Update rules: how the gradient of a loss becomes a step of the policy."""

from polopt.updates.batch_loss import BatchLoss, categorical_divergence
from polopt.updates.momentum import HessianAidedMomentum, TransportedMomentum
from polopt.updates.natural import LineSearch, NaturalGradient
from polopt.updates.parts import AdamW, OptimiserSettings, PlainSettings, RMSprop, Stepper, UpdateRule

__all__ = [
    "AdamW",
    "BatchLoss",
    "HessianAidedMomentum",
    "LineSearch",
    "NaturalGradient",
    "OptimiserSettings",
    "PlainSettings",
    "RMSprop",
    "Stepper",
    "TransportedMomentum",
    "UpdateRule",
    "categorical_divergence",
]
