"""Schedules: settings that change during training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from polopt.part import Part

__all__ = ["Schedule", "now"]

Shape = Literal["linear", "cosine", "step"]


class Schedule(Part):
    """A number that depends on the number of batches learned from.

    knots: (batches, value) in rising order; constant before the first and after the last. shape: the interpolation
    between knots, one for all or one for each interval: "linear"; "cosine", half a wave with level ends;
    "step", the earlier value until the next knot.
    """

    binds = "decision"

    knots: Sequence[tuple[int, float]]
    shape: Shape | Sequence[Shape] = "linear"

    def setup(self) -> None:
        times = [t for t, _ in self.knots]
        if not times or times != sorted(set(times)):
            raise ValueError(f"schedules.Schedule: knots need rising numbers of batches, found {times}")
        if not isinstance(self.shape, str) and len(self.shape) != len(times) - 1:
            raise ValueError(
                f"schedules.Schedule: {len(times)} knots have {len(times) - 1} stretches between them, "
                f"found {len(self.shape)} shapes"
            )
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self) -> float:
        return self.at(int(self.get_buffer("batches")))

    def on_step(self) -> None:
        self.get_buffer("batches").add_(1)

    def at(self, batches: int) -> float:
        """Returns the value after this many batches."""
        if batches <= self.knots[0][0]:
            return self.knots[0][1]
        for i, ((t, v), (end, goal)) in enumerate(zip(self.knots, self.knots[1:], strict=False)):
            if batches < end:
                shape = self.shape if isinstance(self.shape, str) else self.shape[i]
                done = (batches - t) / (end - t)
                fraction = {"linear": done, "cosine": (1 - math.cos(math.pi * done)) / 2, "step": 0.0}[shape]
                return v + (goal - v) * fraction
        return self.knots[-1][1]


def now(setting: float | Schedule) -> float:
    """Returns the current value of a setting."""
    return setting() if isinstance(setting, Schedule) else setting
