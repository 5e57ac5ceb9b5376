"""What parts call out to: a model behind a server, a text scorer trained here, a pool that nodes share."""

from polopt.backends.chat import BudgetError, Chat, ChatError
from polopt.backends.pool import FolderPool, LocalPool, Pool, PublishedGroup
from polopt.backends.scorer import ScorerShape, TextScorer, load_scorer, save_scorer
from polopt.backends.scorer_training import Pairs, choose_same, fit_scorer, likes, prefers, same_policy_pairs

__all__ = [
    "BudgetError",
    "Chat",
    "ChatError",
    "FolderPool",
    "LocalPool",
    "Pairs",
    "Pool",
    "PublishedGroup",
    "ScorerShape",
    "TextScorer",
    "choose_same",
    "fit_scorer",
    "likes",
    "load_scorer",
    "prefers",
    "same_policy_pairs",
    "save_scorer",
]
