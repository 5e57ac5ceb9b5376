"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.envelope import Envelope
from polopt.rewards.flawed import FlawedPositive, step_verdict
from polopt.rewards.length import LinearLength, RelativeLength
from polopt.rewards.marks import Answering, Longer, Mark, OfKind, Right, Signalled, SolvedGroups, TopGroups
from polopt.rewards.noise import BackwardCorrected, FixedRates, ForwardCorrected, NotedRates, Rates, RejudgedRates
from polopt.rewards.parts import Clipped, Gated, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum
from polopt.rewards.shaped import Discounted, Shaped, bent, interval_iou
from polopt.rewards.thinking import ThinkOrNot

__all__ = [
    "Answering",
    "BackwardCorrected",
    "Clipped",
    "Discounted",
    "Envelope",
    "FixedRates",
    "FlawedPositive",
    "ForwardCorrected",
    "Gated",
    "KLPenalty",
    "LinearLength",
    "Longer",
    "Mark",
    "NotedRates",
    "OfKind",
    "Outcome",
    "Overlong",
    "Rates",
    "RejudgedRates",
    "RelativeLength",
    "Reward",
    "Right",
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
