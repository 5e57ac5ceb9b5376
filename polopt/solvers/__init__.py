"""Solvers of exact problems, matrix-free linear solvers, and implicit gradients through an inner optimisation."""

from polopt.solvers.bilevel import (
    BilevelDescent,
    DirectGradient,
    Hypergradient,
    ImplicitHypergradient,
    InnerSteps,
    MomentumStep,
    NormalisedMomentumStep,
    TrackedHypergradient,
)
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
    "BilevelDescent",
    "ConjugateGradient",
    "DirectGradient",
    "DiscountedRegretSum",
    "Hypergradient",
    "ImplicitHypergradient",
    "InnerSteps",
    "IterationWeight",
    "LinearSolver",
    "LinearWeight",
    "MomentumStep",
    "Neumann",
    "NormalisedMomentumStep",
    "PositiveRegretSum",
    "PowerWeight",
    "RegretMatching",
    "RegretMinimizer",
    "RegretSum",
    "Solver",
    "TrackedHypergradient",
    "implicit_gradient",
]
