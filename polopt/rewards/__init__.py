"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.aligned import Aligned
from polopt.rewards.departure import AnswerRatio, Departure, LogRatio
from polopt.rewards.discriminator import Discriminator
from polopt.rewards.envelope import Envelope
from polopt.rewards.parts import Clipped, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum
from polopt.rewards.surprise import Surprise

__all__ = [
    "Aligned",
    "AnswerRatio",
    "Clipped",
    "Departure",
    "Discriminator",
    "Envelope",
    "KLPenalty",
    "LogRatio",
    "Outcome",
    "Overlong",
    "Reward",
    "Scaled",
    "Sum",
    "Surprise",
]
