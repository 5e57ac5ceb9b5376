"""What parts call out to: a model behind a server, a model that scores texts, a pool that nodes share."""

from polopt.backends.chat import BudgetError, Chat, ChatError
from polopt.backends.pool import FolderPool, LocalPool, Pool, PublishedGroup
from polopt.backends.scorer import ScorerShape, TextScorer
from polopt.backends.scorer_files import load_scorer, save_scorer
from polopt.backends.scorer_training import Pairs, choose_same, fit_scorer, likes, prefers, same_policy_pairs
from polopt.backends.text_classifier import TextClassifier

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
    "TextClassifier",
    "TextScorer",
    "choose_same",
    "fit_scorer",
    "likes",
    "load_scorer",
    "prefers",
    "same_policy_pairs",
    "save_scorer",
]
