"""What the rollouts were worth: the world's outcome, shaped and combined."""

from polopt.rewards.aligned import Aligned
from polopt.rewards.departure import AnswerRatio, Departure, LogRatio
from polopt.rewards.discriminator import Discriminator
from polopt.rewards.envelope import Envelope
from polopt.rewards.flawed import FlawedPositive, step_verdict
from polopt.rewards.length import LinearLength, RelativeLength
from polopt.rewards.marks import Answering, Longer, Mark, OfKind, Right, Signalled, SolvedGroups, TopGroups
from polopt.rewards.noise import BackwardCorrected, FixedRates, ForwardCorrected, NotedRates, Rates, RejudgedRates
from polopt.rewards.parts import Clipped, Gated, KLPenalty, Outcome, Overlong, Reward, Scaled, Sum
from polopt.rewards.surprise import Surprise
from polopt.rewards.thinking import ThinkOrNot

__all__ = [
    "Aligned",
    "AnswerRatio",
    "Answering",
    "BackwardCorrected",
    "Clipped",
    "Departure",
    "Discriminator",
    "Envelope",
    "FixedRates",
    "FlawedPositive",
    "ForwardCorrected",
    "Gated",
    "KLPenalty",
    "LinearLength",
    "LogRatio",
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
    "Signalled",
    "SolvedGroups",
    "Sum",
    "Surprise",
    "ThinkOrNot",
    "TopGroups",
    "step_verdict",
]
