"""A reward for answers whose length is in a range."""

from __future__ import annotations

from torch import Tensor

from polopt.experience import Experience
from polopt.rewards.parts import Reward


class LengthEnvelope(Reward):
    """A trapezoidal reward of the length |y|, in decisions, with least < low <= high < most:
        0 below least, rising to 1 at low, 1 up to high, falling to 0 at most, and 0 beyond.

    A `ConditionalReward` by `TaskKindIs`, with one such term for each kind of task, gives each kind its own range.
    Source: task-level length shaping, arXiv:2604.08539, equation 9.
    """

    least: int
    low: int
    high: int
    most: int

    def setup(self) -> None:
        if not 0 <= self.least < self.low <= self.high < self.most:
            raise ValueError(
                "rewards.LengthEnvelope: need 0 <= least < low <= high < most, found "
                f"{self.least}, {self.low}, {self.high}, {self.most}"
            )

    def forward(self, experience: Experience) -> Tensor:
        length = experience.lengths.to(experience.precision)
        rise, fall = (length - self.least) / (self.low - self.least), (self.most - length) / (self.most - self.high)
        return rise.minimum(fall).clamp(0, 1)
