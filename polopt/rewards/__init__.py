"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.parts import Clipped, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum
from polopt.rewards.surprise import Surprise

__all__ = ["Clipped", "Envelope", "KLPenalty", "Outcome", "Overlong", "Reward", "Scaled", "Sum", "Surprise"]
