"""Update rules: how the gradient of a loss becomes a step of the policy."""

from polopt.updates.batch_loss import BatchLoss, categorical_divergence
from polopt.updates.natural import LineSearch, NaturalGradient
from polopt.updates.parts import AdamW, OptimiserSettings, PlainSettings, RMSprop, Stepper, UpdateRule

__all__ = [
    "AdamW",
    "BatchLoss",
    "LineSearch",
    "NaturalGradient",
    "OptimiserSettings",
    "PlainSettings",
    "RMSprop",
    "Stepper",
    "UpdateRule",
    "categorical_divergence",
]
