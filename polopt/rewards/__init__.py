"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.flawed import FlawedPositive, step_verdict
from polopt.rewards.judged import Judged
from polopt.rewards.judges import Chat, HTTPJudge, Judge, LearnedJudge
from polopt.rewards.length import LinearLength, RelativeLength
from polopt.rewards.marks import Answering, Longer, Mark, OfKind, Right, Signalled, SolvedGroups, TopGroups
from polopt.rewards.measured import Audit, Measured
from polopt.rewards.noise import BackwardCorrected, FixedRates, ForwardCorrected, NotedRates, Rates, RejudgedRates
from polopt.rewards.noted import Noted
from polopt.rewards.parts import Clipped, Gated, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum
from polopt.rewards.rewritten import HTTPGrader, HTTPMeta
from polopt.rewards.rubric import Grader, Item, Meta, RubricReward
from polopt.rewards.shaped import Discounted, Shaped, bent, interval_iou
from polopt.rewards.thinking import ThinkOrNot

__all__ = [
    "Answering",
    "Audit",
    "BackwardCorrected",
    "Chat",
    "Clipped",
    "Discounted",
    "Envelope",
    "FixedRates",
    "FlawedPositive",
    "ForwardCorrected",
    "Gated",
    "Grader",
    "HTTPGrader",
    "HTTPJudge",
    "HTTPMeta",
    "Item",
    "Judge",
    "Judged",
    "KLPenalty",
    "LearnedJudge",
    "LinearLength",
    "Longer",
    "Mark",
    "Measured",
    "Meta",
    "Noted",
    "NotedRates",
    "OfKind",
    "Outcome",
    "Overlong",
    "Rates",
    "RejudgedRates",
    "RelativeLength",
    "Reward",
    "Right",
    "RubricReward",
    "Scaled",
    "Shaped",
    "Signalled",
    "SolvedGroups",
    "Sum",
    "ThinkOrNot",
    "TopGroups",
    "bent",
    "interval_iou",
    "step_verdict",
]
