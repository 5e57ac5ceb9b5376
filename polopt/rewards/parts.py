"""Reward parts: `reward(experience) -> [B] or [B, T]`."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from polopt.experience import Experience
from polopt.part import Part


class Reward(Part):
    """Base of reward parts: `reward(experience) -> [B]` outcome or `[B, T]` per decision, without gradient.

    reads_batch: whether a row's reward depends on other rows of the batch, so that the part must receive the whole
        batch.
    """

    tags = frozenset({"reward_source=shaped"})

    reads_batch: ClassVar[bool] = False

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError

    def rewarded(self, experience: Experience) -> Experience:
        """Returns the batch with its `reward`, and with further fields that this reward provides for credit."""
        return experience.replace(reward=self(experience))
