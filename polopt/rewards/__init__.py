"""What the rollouts were worth: the world's outcome, shaped and combined, or what a judge says."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.judged import Judged
from polopt.rewards.judges import Chat, HTTPJudge, Judge, LearnedJudge
from polopt.rewards.measured import Audit, Measured
from polopt.rewards.noted import Noted
from polopt.rewards.parts import Clipped, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum
from polopt.rewards.rewritten import HTTPGrader, HTTPMeta
from polopt.rewards.rubric import Grader, Item, Meta, RubricReward

__all__ = [
    "Audit",
    "Chat",
    "Clipped",
    "Envelope",
    "Grader",
    "HTTPGrader",
    "HTTPJudge",
    "HTTPMeta",
    "Item",
    "Judge",
    "Judged",
    "KLPenalty",
    "LearnedJudge",
    "Measured",
    "Meta",
    "Noted",
    "Outcome",
    "Overlong",
    "Reward",
    "RubricReward",
    "Scaled",
    "Sum",
]
