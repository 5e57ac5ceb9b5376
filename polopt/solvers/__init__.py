"""Solvers of exact problems, matrix-free linear solvers, and implicit gradients through an inner optimisation."""

from polopt.solvers.implicit import implicit_gradient
from polopt.solvers.linear import ConjugateGradient, LinearSolver, Neumann
from polopt.solvers.regret import (
    DiscountedRegretSum,
    IterationWeight,
    LinearWeight,
    PositiveRegretSum,
    PowerWeight,
    RegretMatching,
    RegretMinimizer,
    RegretSum,
)
from polopt.solvers.solver import Solver

__all__ = [
    "ConjugateGradient",
    "DiscountedRegretSum",
    "IterationWeight",
    "LinearSolver",
    "LinearWeight",
    "Neumann",
    "PositiveRegretSum",
    "PowerWeight",
    "RegretMatching",
    "RegretMinimizer",
    "RegretSum",
    "Solver",
    "implicit_gradient",
]
