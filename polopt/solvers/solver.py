"""The interface of solvers: a start, one step, and the solution so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from polopt.part import Part
from polopt.problems import ExactProblem

# The complete state of a solver between two steps, by name.
State = Mapping[str, Tensor]


class Solver(Part):
    """Improves a solution of a problem step by step:

        state = solver.begin(problem)
        state = solver.iterate(problem, state)          # as often as one likes
        solution = solver.solution(problem, state)

    The state is the solver's whole memory, and `iterate` changes neither it nor the solver, so that steps from a saved
    state equal those of an uninterrupted run.
    """

    method_kind: ClassVar[str | None] = "solver"
    # The class of problems that it solves.
    solves: ClassVar[type] = object
    # Iterations after which `polopt check` expects a better solution than at the start.
    progress_steps: ClassVar[int] = 100

    def begin(self, problem: ExactProblem) -> dict[str, Tensor]:
        """Returns the state before the first step.

        Raises:
            TypeError: the problem is not of the class that this solver solves.
        """
        if not isinstance(problem, self.solves):
            raise TypeError(f"{self!r:.80} solves problems of the class {self.solves.__name__}, found {problem!r:.80}")
        return self.start(problem)

    def start(self, problem: ExactProblem) -> dict[str, Tensor]:
        """Returns the state before the first step, for a problem of the class `solves`."""
        raise NotImplementedError

    def iterate(self, problem: ExactProblem, state: State) -> dict[str, Tensor]:
        """Returns the state after one more step."""
        raise NotImplementedError

    def solution(self, problem: ExactProblem, state: State) -> Tensor:
        """Returns the solution of a state, in the form that the problem measures."""
        raise NotImplementedError
