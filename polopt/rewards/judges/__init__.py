"""Judges for answers that no program can verify: small models trained here, and models behind a server."""

from polopt.rewards.judges.chat import BudgetError, Chat, ChatError
from polopt.rewards.judges.http import HTTPJudge
from polopt.rewards.judges.learned import LearnedJudge
from polopt.rewards.judges.parts import Judge, Judgement
from polopt.rewards.judges.scorer import TextScorer, load_scorer, save_scorer
from polopt.rewards.judges.teach import Pairs, choose_same, fit, likes, prefers, same_policy_pairs

__all__ = [
    "BudgetError",
    "Chat",
    "ChatError",
    "HTTPJudge",
    "Judge",
    "Judgement",
    "LearnedJudge",
    "Pairs",
    "TextScorer",
    "choose_same",
    "fit",
    "likes",
    "load_scorer",
    "prefers",
    "same_policy_pairs",
    "save_scorer",
]
