"""Which rollouts to buy, and which to keep."""

from polopt.sampling.allocation import allocate, allocate_exactly, apportioned, knapsack, knapsack_value, neyman
from polopt.sampling.branches import Branches
from polopt.sampling.budgets import GradientVariance, Knapsack
from polopt.sampling.chance import Ranked, Resampled
from polopt.sampling.choices import Curriculum, Posterior
from polopt.sampling.cuts import Cuts, InDoubt
from polopt.sampling.diversity import distinct, edit_distance, mean_edit_distance, self_bleu
from polopt.sampling.guides import Prefixes, Rules
from polopt.sampling.histories import History, fit, predictor_loss
from polopt.sampling.lookahead import Lookahead, LookaheadRollouts
from polopt.sampling.mix import Mix, Replaced, WithDemonstrations, WithSolutions, WithTexts
from polopt.sampling.parts import Budget, Choice, Even, Guide, Sampling, Select, Source, Start, Uniform, select_rows
from polopt.sampling.phrasings import Neighbours, Phrasings
from polopt.sampling.pool import FolderPool, LocalPool, Pool, Shared
from polopt.sampling.predicted import Foretold, Predicted, Promising, Sequential
from polopt.sampling.predictor import BaseRate, InContext, Predictor
from polopt.sampling.probe import Probed, trie_logp
from polopt.sampling.promoting import VariancePromoting
from polopt.sampling.recompose import Marked, Recomposed, shortest_right_longest_wrong
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, Rollouts, Texts
from polopt.sampling.select import Balanced, Best, Distinct, NonZero, Varied
from polopt.sampling.subsets import MostVaried, TopDecisions, most_varied
from polopt.sampling.success import Success
from polopt.sampling.successes import Successes
from polopt.sampling.swarm import Swarm
from polopt.sampling.table import Table
from polopt.sampling.tagged import Cheapest, Tagged
from polopt.sampling.temperature import EntropyTemperature
from polopt.sampling.trigger import WithoutTrigger
from polopt.sampling.windows import Windows

__all__ = [
    "Balanced",
    "BaseRate",
    "Best",
    "Branches",
    "Budget",
    "Cheapest",
    "Choice",
    "Curriculum",
    "Cuts",
    "Demonstrations",
    "Distinct",
    "EntropyTemperature",
    "Even",
    "FolderPool",
    "Foretold",
    "GradientVariance",
    "Guide",
    "History",
    "InContext",
    "InDoubt",
    "Knapsack",
    "LocalPool",
    "Lookahead",
    "LookaheadRollouts",
    "Marked",
    "Mix",
    "MostVaried",
    "Neighbours",
    "NonZero",
    "Phrasings",
    "Pool",
    "Posterior",
    "Predicted",
    "Predictor",
    "Prefixes",
    "Probed",
    "Promising",
    "Ranked",
    "Recomposed",
    "Replaced",
    "Replay",
    "Resampled",
    "Rollouts",
    "Rules",
    "Sampling",
    "Select",
    "Sequential",
    "Shared",
    "Source",
    "Start",
    "Success",
    "Successes",
    "Swarm",
    "Table",
    "Tagged",
    "Texts",
    "TopDecisions",
    "Uniform",
    "VariancePromoting",
    "Varied",
    "Windows",
    "WithDemonstrations",
    "WithSolutions",
    "WithTexts",
    "WithoutTrigger",
    "allocate",
    "allocate_exactly",
    "apportioned",
    "distinct",
    "edit_distance",
    "fit",
    "knapsack",
    "knapsack_value",
    "mean_edit_distance",
    "most_varied",
    "neyman",
    "predictor_loss",
    "select_rows",
    "self_bleu",
    "shortest_right_longest_wrong",
    "trie_logp",
]
