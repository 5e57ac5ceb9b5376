"""Which rollouts to buy, and which to keep."""

from polopt.sampling.branches import Branches
from polopt.sampling.chance import Ranked, Resampled
from polopt.sampling.cuts import Cuts, InDoubt
from polopt.sampling.mix import Mix, Replaced, WithDemonstrations, WithSolutions, WithTexts
from polopt.sampling.parts import Budget, Choice, Even, Guide, Sampling, Select, Source, Start, Uniform
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, Rollouts, Texts
from polopt.sampling.select import Balanced, Best, Distinct, NonZero, Varied
from polopt.sampling.subsets import MostVaried, TopDecisions, most_varied
from polopt.sampling.table import Table
from polopt.sampling.temperature import EntropyTemperature
from polopt.sampling.trigger import WithoutTrigger
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
    "Guide",
    "InDoubt",
    "Mix",
    "MostVaried",
    "NonZero",
    "Ranked",
    "Replaced",
    "Replay",
    "Resampled",
    "Rollouts",
    "Sampling",
    "Select",
    "Source",
    "Start",
    "Table",
    "Texts",
    "TopDecisions",
    "Uniform",
    "Varied",
    "Windows",
    "WithDemonstrations",
    "WithSolutions",
    "WithTexts",
    "WithoutTrigger",
    "most_varied",
]
