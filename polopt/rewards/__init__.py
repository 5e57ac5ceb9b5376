"""What the rollouts were worth: the world's outcome, shaped and combined, or what a judge says."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.judged import Judged
from polopt.rewards.judges import Chat, HTTPJudge, Judge, LearnedJudge
from polopt.rewards.parts import Clipped, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum

__all__ = [
    "Chat",
    "Clipped",
    "Envelope",
    "HTTPJudge",
    "Judge",
    "Judged",
    "KLPenalty",
    "LearnedJudge",
    "Outcome",
    "Overlong",
    "Reward",
    "Scaled",
    "Sum",
]
