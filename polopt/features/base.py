"""The kinds of feature: a number, a truth value or a group number for each row or token of a batch."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.part import Part
from polopt.part_names import name_of

# What one value describes. A token is a decision, of any kind of policy; a turn is the decisions between two
# observations; a row is a trajectory; a group is the rows that are compared with each other.
Unit = Literal["token", "turn", "row", "group"]


class Feature(Part):
    """`feature(experience) -> [B] or [B, T]`: what is known of each row or token of a batch, without gradient.

    unit: what one value describes. The values of "row" and "group" are [B], rows of one group being equal; those of
    "token" and "turn" are [B, T], the decisions of one turn being equal, and are ignored outside the mask.
    reads_batch: whether a value depends on other rows of the batch, so that the feature must receive the whole batch.
    """

    unit: ClassVar[Unit] = "row"
    reads_batch: ClassVar[bool] = False

    def __call__(self, experience: Experience) -> Tensor:
        """Returns the values that `forward` computes.

        Raises:
            ExperienceError: a field that the part reads is missing, or the values do not have the unit's shape.
        """
        values: Tensor = super().__call__(experience)
        shape = experience.mask.shape if self.unit in ("token", "turn") else experience.mask.shape[:1]
        if not isinstance(values, Tensor) or values.shape != shape:
            raise ExperienceError(f"{name_of(type(self))} must return {list(shape)}, found {described(values)}")
        return values

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class RowFeature(Feature):
    """`feature(experience) -> [B]`: one number for each row."""


class TokenFeature(Feature):
    """`feature(experience) -> [B, T]`: one number for each token."""

    unit: ClassVar[Unit] = "token"


class Mask(Feature):
    """`mask(experience) -> [B] or [B, T] bool`: whether a condition holds for each row, or for each token."""

    def __call__(self, experience: Experience) -> Tensor:
        values = super().__call__(experience)
        if values.dtype != torch.bool:
            raise ExperienceError(f"{name_of(type(self))} must return bool, found {described(values)}")
        return values


class RowMask(Mask):
    """`mask(experience) -> [B] bool`: whether a condition holds for each row."""


class TokenMask(Mask):
    """`mask(experience) -> [B, T] bool`: whether a condition holds for each token."""

    unit: ClassVar[Unit] = "token"


class Grouping(Feature):
    """`grouping(experience) -> [B] int`: rows with equal numbers are compared with each other.

    parts_prompts: whether rows of two prompts are never in one group.
    """

    unit: ClassVar[Unit] = "group"
    reads_batch: ClassVar[bool] = True
    parts_prompts: ClassVar[bool] = False


def described(values: object) -> str:
    """Returns the type and shape of a feature's values for an error."""
    return f"{values.dtype} {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
