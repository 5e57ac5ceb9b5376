"""Which rollouts to buy, and which to keep."""

from polopt.sampling.branches import Branches
from polopt.sampling.chance import Ranked, Resampled
from polopt.sampling.cuts import Cuts, InDoubt
from polopt.sampling.lookahead import Lookahead
from polopt.sampling.mix import Mix, Replaced, WithDemonstrations, WithSolutions, WithTexts
from polopt.sampling.parts import Sampling, Select, Source
from polopt.sampling.recompose import Marked, Recomposed, shortest_right_longest_wrong
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, Rollouts, Texts
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
    "Lookahead",
    "Marked",
    "Mix",
    "MostVaried",
    "NonZero",
    "Ranked",
    "Recomposed",
    "Replaced",
    "Replay",
    "Resampled",
    "Rollouts",
    "Sampling",
    "Select",
    "Source",
    "Texts",
    "TopDecisions",
    "Varied",
    "Windows",
    "WithDemonstrations",
    "WithSolutions",
    "WithTexts",
    "most_varied",
    "shortest_right_longest_wrong",
]
