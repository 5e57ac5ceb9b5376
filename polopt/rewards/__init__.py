"""Reward parts: the world's outcome, shaped and combined, and the scores of judge models."""

from polopt.rewards.aligned import AlignedReward
from polopt.rewards.blocks import Blocks, Brevity, HasBlock, LeadingBlocks, LengthWindow
from polopt.rewards.departure import AnswerRatio, Departure, LogRatio
from polopt.rewards.discriminator import Discriminator
from polopt.rewards.editing import EtConCleanness, EtConConsistency, EtConCorrectness, EtConForm
from polopt.rewards.envelope import LengthEnvelope
from polopt.rewards.field import FieldReward
from polopt.rewards.flawed import FlawedPositive, step_verdict
from polopt.rewards.judged import JudgedReward
from polopt.rewards.judges import HTTPJudge, Judge, LearnedJudge
from polopt.rewards.length import LinearLength, RelativeLength
from polopt.rewards.measured import AuditedRubric, ProgramGrader
from polopt.rewards.modelled import LinearTokenReward
from polopt.rewards.noise import BackwardCorrected, FixedRates, ForwardCorrected, NotedRates, Rates, RejudgedRates
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
    TurnRewards,
)
from polopt.rewards.payoffs import DistinctPayoffs, LegiblePayoffs, payoffs
from polopt.rewards.rewritten import HTTPGrader, HTTPMeta
from polopt.rewards.rubric import Grader, Item, Meta, RubricReward
from polopt.rewards.shaped import BentReward, DiscountedDemonstrations, bent, interval_iou
from polopt.rewards.surprise import SurprisalPenalty
from polopt.rewards.thinking import ThinkOrNot
from polopt.rewards.unit_tests import UnitTest
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
    "AlignedReward",
    "AnswerRatio",
    "AuditedRubric",
    "BackwardCorrected",
    "BentReward",
    "Blocks",
    "Brevity",
    "ClippedReward",
    "ConditionalReward",
    "Departure",
    "DiscountedDemonstrations",
    "Discriminator",
    "DistinctPayoffs",
    "EnvironmentReward",
    "EtConCleanness",
    "EtConConsistency",
    "EtConCorrectness",
    "EtConForm",
    "FieldReward",
    "FixedRates",
    "FlawedPositive",
    "ForwardCorrected",
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
    "LegiblePayoffs",
    "LengthEnvelope",
    "LengthWindow",
    "LinearLength",
    "LinearTokenReward",
    "LogRatio",
    "Meta",
    "MinimumReward",
    "NotedRates",
    "OutcomeReward",
    "OverlongPenalty",
    "PositiveReward",
    "ProgramGrader",
    "Rates",
    "RejudgedRates",
    "RelativeLength",
    "Reward",
    "RubricReward",
    "ScaledReward",
    "SumOfRewards",
    "SurprisalPenalty",
    "ThinkOrNot",
    "TurnRewards",
    "UnitTest",
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
