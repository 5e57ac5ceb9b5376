"""What parts call out to: a model behind a server, models that score texts and are fitted to preferences, a pool that
nodes share."""

from polopt.backends.chat import BudgetError, Chat, ChatError
from polopt.backends.pool import FolderPool, LocalPool, Pool, PublishedGroup
from polopt.backends.preference_models import BradleyTerry, GaussianReward, GeneralPreference, PreferenceModel
from polopt.backends.scorer import ScorerShape, TextScorer
from polopt.backends.scorer_files import PreferenceFit, load_preference, load_scorer, save_scorer
from polopt.backends.scorer_training import Pairs, choose_same, fit_scorer, likes, prefers, same_policy_pairs
from polopt.backends.text_classifier import TextClassifier, make_classifier

__all__ = [
    "BradleyTerry",
    "BudgetError",
    "Chat",
    "ChatError",
    "FolderPool",
    "GaussianReward",
    "GeneralPreference",
    "LocalPool",
    "Pairs",
    "Pool",
    "PreferenceFit",
    "PreferenceModel",
    "PublishedGroup",
    "ScorerShape",
    "TextClassifier",
    "TextScorer",
    "choose_same",
    "fit_scorer",
    "likes",
    "load_preference",
    "load_scorer",
    "make_classifier",
    "prefers",
    "same_policy_pairs",
    "save_scorer",
]
