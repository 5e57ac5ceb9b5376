"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.parts import Clipped, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum
from polopt.rewards.shaped import Discounted, Shaped, bent, interval_iou

__all__ = [
    "Clipped",
    "Discounted",
    "Envelope",
    "KLPenalty",
    "Outcome",
    "Overlong",
    "Reward",
    "Scaled",
    "Shaped",
    "Sum",
    "bent",
    "interval_iou",
]
