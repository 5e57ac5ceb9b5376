"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.blocks import Blocks, Brevity, Gated, Window
from polopt.rewards.editing import Clean, Consistent, Correct, InForm
from polopt.rewards.envelope import Envelope
from polopt.rewards.modelled import Modelled
from polopt.rewards.parts import Clipped, KLPenalty, Outcome, Overlong, Paid, Reward, Scaled, Sum
from polopt.rewards.payoffs import Legible, Payoffs, payoffs
from polopt.rewards.unit_tests import UnitTest
from polopt.rewards.welfare import GeometricMean, Least, arithmetic_mean, choose, efficient, geometric_mean, least

__all__ = [
    "Blocks",
    "Brevity",
    "Clean",
    "Clipped",
    "Consistent",
    "Correct",
    "Envelope",
    "Gated",
    "GeometricMean",
    "InForm",
    "KLPenalty",
    "Least",
    "Legible",
    "Modelled",
    "Outcome",
    "Overlong",
    "Paid",
    "Payoffs",
    "Reward",
    "Scaled",
    "Sum",
    "UnitTest",
    "Window",
    "arithmetic_mean",
    "choose",
    "efficient",
    "geometric_mean",
    "least",
    "payoffs",
]
