"""Which rollouts to buy, and which to keep."""

from polopt.sampling.branches import Branches
from polopt.sampling.chance import Ranked, Resampled
from polopt.sampling.cuts import Cuts, InDoubt
from polopt.sampling.histories import History, fit, predictor_loss
from polopt.sampling.mix import Mix, Replaced, WithDemonstrations, WithSolutions, WithTexts
from polopt.sampling.parts import Sampling, Select, Source
from polopt.sampling.predictor import BaseRate, InContext, Predictor
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, Rollouts, Texts
from polopt.sampling.select import Balanced, Best, Distinct, NonZero, Varied
from polopt.sampling.subsets import MostVaried, TopDecisions, most_varied
from polopt.sampling.temperature import EntropyTemperature
from polopt.sampling.windows import Windows

__all__ = [
    "Balanced",
    "BaseRate",
    "Best",
    "Branches",
    "Cuts",
    "Demonstrations",
    "Distinct",
    "EntropyTemperature",
    "History",
    "InContext",
    "InDoubt",
    "Mix",
    "MostVaried",
    "NonZero",
    "Predictor",
    "Ranked",
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
    "fit",
    "most_varied",
    "predictor_loss",
]
