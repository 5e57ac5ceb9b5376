"""Which rollouts to buy, and which to keep."""

from polopt.sampling.branches import Branches
from polopt.sampling.chance import Ranked, Resampled
from polopt.sampling.cuts import Cuts, InDoubt
from polopt.sampling.parts import Sampling, Select, Source
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, Rollouts
from polopt.sampling.select import Balanced, Best, Distinct, NonZero, Varied
from polopt.sampling.subsets import MostVaried, TopDecisions, most_varied
from polopt.sampling.temperature import EntropyTemperature
from polopt.sampling.windows import Windows

__all__ = [
    "Balanced",
    "Best",
    "Branches",
    "Cuts",
    "Demonstrations",
    "Distinct",
    "EntropyTemperature",
    "InDoubt",
    "MostVaried",
    "NonZero",
    "Ranked",
    "Replay",
    "Resampled",
    "Rollouts",
    "Sampling",
    "Select",
    "Source",
    "TopDecisions",
    "Varied",
    "Windows",
    "most_varied",
]
