"""What a solver solves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class ExactProblem(Protocol):
    """An exact problem: a solution can be measured without error.

    name, unit: of the problem, and of the first of its measures.
    """

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str: ...

    def measure(self, solution: Tensor) -> dict[str, float]:
        """How good a solution is, by name: first the distance from an exact solution, 0 at one."""

    def table(self, solution: Tensor) -> Mapping[str, Any]:
        """A solution as plain data."""
