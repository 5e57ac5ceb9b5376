"""Which rollouts to buy, and which to keep."""

from polopt.sampling.branches import Branches
from polopt.sampling.chance import Ranked, Resampled
from polopt.sampling.cuts import Cuts, InDoubt
from polopt.sampling.lookahead import Lookahead, LookaheadRollouts
from polopt.sampling.mix import Mix, Replaced, WithDemonstrations, WithSolutions, WithTexts
from polopt.sampling.parts import Budget, Choice, Even, Guide, Sampling, Select, Source, Start, Uniform
from polopt.sampling.pool import FolderPool, LocalPool, Pool, Shared
from polopt.sampling.recompose import Marked, Recomposed, shortest_right_longest_wrong
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, Rollouts, Texts
from polopt.sampling.select import Balanced, Best, Distinct, NonZero, Varied
from polopt.sampling.subsets import MostVaried, TopDecisions, most_varied
from polopt.sampling.successes import Successes
from polopt.sampling.swarm import Swarm
from polopt.sampling.table import Table
from polopt.sampling.temperature import EntropyTemperature
from polopt.sampling.windows import Windows

__all__ = [
    "Balanced",
    "Best",
    "Branches",
    "Budget",
    "Choice",
    "Cuts",
    "Demonstrations",
    "Distinct",
    "EntropyTemperature",
    "Even",
    "FolderPool",
    "Guide",
    "InDoubt",
    "LocalPool",
    "Lookahead",
    "LookaheadRollouts",
    "Marked",
    "Mix",
    "MostVaried",
    "NonZero",
    "Pool",
    "Ranked",
    "Recomposed",
    "Replaced",
    "Replay",
    "Resampled",
    "Rollouts",
    "Sampling",
    "Select",
    "Shared",
    "Source",
    "Start",
    "Successes",
    "Swarm",
    "Table",
    "Texts",
    "TopDecisions",
    "Uniform",
    "Varied",
    "Windows",
    "WithDemonstrations",
    "WithSolutions",
    "WithTexts",
    "most_varied",
    "shortest_right_longest_wrong",
]
