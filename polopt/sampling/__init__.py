"""Which rollouts to buy, and which to keep."""

from polopt.sampling.parts import Sampling, Select, Source
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, Rollouts
from polopt.sampling.select import Best, Distinct, Varied

__all__ = ["Best", "Demonstrations", "Distinct", "Replay", "Rollouts", "Sampling", "Select", "Source", "Varied"]
