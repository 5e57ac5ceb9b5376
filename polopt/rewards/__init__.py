"""Reward parts: the world's outcome, shaped and combined, and the scores of judge models."""

from polopt.rewards.blocks import Blocks, Brevity, HasBlock, LeadingBlocks, LengthWindow
from polopt.rewards.discriminator import Discriminator, LogRatio
from polopt.rewards.field import FieldReward
from polopt.rewards.flawed import step_verdict
from polopt.rewards.judged import JudgedReward
from polopt.rewards.judges import HTTPJudge, Judge, LearnedJudge
from polopt.rewards.length import LinearLength, RelativeLength
from polopt.rewards.parts import (
    ClippedReward,
    ConditionalReward,
    EnvironmentReward,
    KLPenalty,
    OutcomeReward,
    OverlongPenalty,
    PositiveReward,
    Reward,
    ScaledReward,
    SumOfRewards,
)
from polopt.rewards.rewritten import HTTPGrader, HTTPMeta
from polopt.rewards.rubric import Grader, Item, Meta, RubricReward
from polopt.rewards.shaped import interval_iou
from polopt.rewards.welfare import (
    GeometricMean,
    MinimumReward,
    arithmetic_mean,
    choose,
    efficient,
    geometric_mean,
    least,
)

__all__ = [
    "Blocks",
    "Brevity",
    "ClippedReward",
    "ConditionalReward",
    "Discriminator",
    "EnvironmentReward",
    "FieldReward",
    "GeometricMean",
    "Grader",
    "HTTPGrader",
    "HTTPJudge",
    "HTTPMeta",
    "HasBlock",
    "Item",
    "Judge",
    "JudgedReward",
    "KLPenalty",
    "LeadingBlocks",
    "LearnedJudge",
    "LengthWindow",
    "LinearLength",
    "LogRatio",
    "Meta",
    "MinimumReward",
    "OutcomeReward",
    "OverlongPenalty",
    "PositiveReward",
    "RelativeLength",
    "Reward",
    "RubricReward",
    "ScaledReward",
    "SumOfRewards",
    "arithmetic_mean",
    "choose",
    "efficient",
    "geometric_mean",
    "interval_iou",
    "least",
    "step_verdict",
]
