"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.parts import KLPenalty, Outcome, Overlong, Reward, Sum

__all__ = ["Envelope", "KLPenalty", "Outcome", "Overlong", "Reward", "Sum"]
