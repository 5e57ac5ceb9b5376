"""Which rollouts to buy, and which to keep."""

from polopt.sampling.parts import Sampling, Select, Source
from polopt.sampling.rollouts import Demonstrations, Rollouts
from polopt.sampling.select import Balanced, Best, Distinct, Varied

__all__ = ["Balanced", "Best", "Demonstrations", "Distinct", "Rollouts", "Sampling", "Select", "Source", "Varied"]
