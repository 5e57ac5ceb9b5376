"""Scales: the units in which advantages are measured."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from polopt import ops
from polopt.credit.parts import Scale, Unit, fields_of_unit, row_weights
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt, single_row_groups
from polopt.situation import Situation


class GroupStd(Scale):
    """Standard deviation of the group's returns plus eps. correction 1 divides by n - 1, 0 by n. within, unit: as in
    `GroupMean`.

    A group whose returns are all equal, or of one row, has std 0. Relative to the group's mean its advantages
    are then 0; relative to anything else they are of the order 1 / eps.
    """

    eps: float = 1e-6
    correction: int = 1
    within: Grouping = SamePrompt()
    unit: Unit = "row"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return fields_of_unit(self.unit)

    def setup(self) -> None:
        if self.eps < 0:
            raise ValueError(f"credit.GroupStd: eps must be >= 0, found {self.eps}")

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within, situation)

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        count = row_weights(experience, self.unit)
        return ops.group_std(returns, self.within(experience), self.correction, count) + self.eps
