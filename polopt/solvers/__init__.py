"""Linear systems that are known by their products alone, and gradients through the end of an inner optimisation."""

from polopt.solvers.implicit import implicit_gradient
from polopt.solvers.linear import ConjugateGradient, LinearSolver, Neumann

__all__ = ["ConjugateGradient", "LinearSolver", "Neumann", "implicit_gradient"]
