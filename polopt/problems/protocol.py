"""The interface of problems that solvers solve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class ExactProblem(Protocol):
    """A problem on which a solution can be measured without error.

    name, unit: of the problem, and of the first of its measures.
    """

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str: ...

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Returns measures of a solution by name: first the distance from an exact solution, 0 at one."""

    def table(self, solution: Tensor) -> Mapping[str, Any]:
        """Converts a solution to plain data."""
