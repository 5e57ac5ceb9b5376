"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.parts import Clipped, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum

__all__ = ["Clipped", "Envelope", "KLPenalty", "Outcome", "Overlong", "Reward", "Scaled", "Sum"]
