"""What the rollouts were worth: the world's outcome, shaped and combined, or what a judge says."""

from polopt.rewards.aligned import Aligned
from polopt.rewards.blocks import Blocks, Brevity, HasBlock, LeadingBlocks, Window
from polopt.rewards.departure import AnswerRatio, Departure, LogRatio
from polopt.rewards.discriminator import Discriminator
from polopt.rewards.editing import Clean, Consistent, Correct, InForm
from polopt.rewards.envelope import Envelope
from polopt.rewards.flawed import FlawedPositive, step_verdict
from polopt.rewards.judged import Judged
from polopt.rewards.judges import Chat, HTTPJudge, Judge, LearnedJudge
from polopt.rewards.length import LinearLength, RelativeLength
from polopt.rewards.marks import Answering, Longer, Mark, OfKind, Right, Signalled, SolvedGroups, TopGroups
from polopt.rewards.measured import Audit, Measured
from polopt.rewards.modelled import Modelled
from polopt.rewards.noise import BackwardCorrected, FixedRates, ForwardCorrected, NotedRates, Rates, RejudgedRates
from polopt.rewards.noted import Noted
from polopt.rewards.parts import (
    Clipped,
    Environment,
    Gated,
    KLPenalty,
    Outcome,
    Overlong,
    Paid,
    Paying,
    Reward,
    Scaled,
    Sum,
)
from polopt.rewards.payoffs import Legible, Payoffs, payoffs
from polopt.rewards.rewritten import HTTPGrader, HTTPMeta
from polopt.rewards.rubric import Grader, Item, Meta, RubricReward
from polopt.rewards.shaped import Discounted, Shaped, bent, interval_iou
from polopt.rewards.surprise import Surprise
from polopt.rewards.thinking import ThinkOrNot
from polopt.rewards.unit_tests import UnitTest
from polopt.rewards.welfare import GeometricMean, Least, arithmetic_mean, choose, efficient, geometric_mean, least

__all__ = [
    "Aligned",
    "AnswerRatio",
    "Answering",
    "Audit",
    "BackwardCorrected",
    "Blocks",
    "Brevity",
    "Chat",
    "Clean",
    "Clipped",
    "Consistent",
    "Correct",
    "Departure",
    "Discounted",
    "Discriminator",
    "Envelope",
    "Environment",
    "FixedRates",
    "FlawedPositive",
    "ForwardCorrected",
    "Gated",
    "GeometricMean",
    "Grader",
    "HTTPGrader",
    "HTTPJudge",
    "HTTPMeta",
    "HasBlock",
    "InForm",
    "Item",
    "Judge",
    "Judged",
    "KLPenalty",
    "LeadingBlocks",
    "LearnedJudge",
    "Least",
    "Legible",
    "LinearLength",
    "LogRatio",
    "Longer",
    "Mark",
    "Measured",
    "Meta",
    "Modelled",
    "Noted",
    "NotedRates",
    "OfKind",
    "Outcome",
    "Overlong",
    "Paid",
    "Paying",
    "Payoffs",
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
    "Surprise",
    "ThinkOrNot",
    "TopGroups",
    "UnitTest",
    "Window",
    "arithmetic_mean",
    "bent",
    "choose",
    "efficient",
    "geometric_mean",
    "interval_iou",
    "least",
    "payoffs",
    "step_verdict",
]
