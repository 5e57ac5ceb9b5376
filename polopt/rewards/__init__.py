"""Reward parts: the environment's outcome, shaped and combined, and the scores of judge models."""

from polopt.rewards.blocks import Blocks, Brevity, HasBlock, LeadingBlocks, LengthWindow
from polopt.rewards.combinations import (
    ClippedReward,
    ConditionalReward,
    GeometricMean,
    MinimumReward,
    PositiveReward,
    ScaledReward,
    SumOfRewards,
    geometric_mean,
    least,
)
from polopt.rewards.costs import PricedCosts
from polopt.rewards.discriminator import Discriminator, LogRatio
from polopt.rewards.judged import JudgedReward
from polopt.rewards.judges import (
    EnsembleJudge,
    HTTPJudge,
    Judge,
    LearnedJudge,
)
from polopt.rewards.length import LinearLength, RelativeLength
from polopt.rewards.outcomes import EnvironmentReward, FieldReward, OutcomeReward
from polopt.rewards.parts import Reward
from polopt.rewards.penalties import KLPenalty, OverlongPenalty, PolicyLogRatio
from polopt.rewards.preferences import (
    GaussianPreference,
    JudgedPreference,
    OutcomePreference,
    Preference,
    RewardPreference,
    WinRate,
)
from polopt.rewards.rewritten import HTTPGrader, HTTPMeta
from polopt.rewards.rubric import Grader, Item, Meta, RubricReward

__all__ = [
    "Blocks",
    "Brevity",
    "ClippedReward",
    "ConditionalReward",
    "Discriminator",
    "EnsembleJudge",
    "EnvironmentReward",
    "FieldReward",
    "GaussianPreference",
    "GeometricMean",
    "Grader",
    "HTTPGrader",
    "HTTPJudge",
    "HTTPMeta",
    "HasBlock",
    "Item",
    "Judge",
    "JudgedPreference",
    "JudgedReward",
    "KLPenalty",
    "LeadingBlocks",
    "LearnedJudge",
    "LengthWindow",
    "LinearLength",
    "LogRatio",
    "Meta",
    "MinimumReward",
    "OutcomePreference",
    "OutcomeReward",
    "OverlongPenalty",
    "PolicyLogRatio",
    "PositiveReward",
    "Preference",
    "PricedCosts",
    "RelativeLength",
    "Reward",
    "RewardPreference",
    "RubricReward",
    "ScaledReward",
    "SumOfRewards",
    "WinRate",
    "geometric_mean",
    "least",
]
