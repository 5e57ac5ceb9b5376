"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.parts import KLPenalty, Outcome, Overlong, Reward, Sum

__all__ = ["KLPenalty", "Outcome", "Overlong", "Reward", "Sum"]
