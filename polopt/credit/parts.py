"""The kinds of part that credit is composed of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from torch import Tensor

from polopt.experience import Experience
from polopt.part import Part
from polopt.part_names import name_of
from polopt.values import check_values


class Credit(Part):
    """`credit(experience) -> advantage [B, T]`, 0 outside the mask, without gradient.

    Runs once on the whole optimiser batch, before any split, so that group and batch statistics are complete.
    judges_demonstrations: whether the credit, and the reward, also see the demonstrated rows; otherwise the reward of
    these is their outcome, and each of their decisions has advantage 1.
    """

    judges_demonstrations: ClassVar[bool] = False

    def __call__(self, experience: Experience) -> Tensor:
        """Returns the advantages that `forward` computes.

        Raises:
            ExperienceError: a field that the part reads is missing, or holds values that cannot be learned from.
        """
        check_values(experience, by=name_of(type(self)))
        return super().__call__(experience)

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError

    def value_target(self, experience: Experience) -> Tensor | None:
        """Returns a critic's targets before each decision, [B, T], without gradient: those of the one credit inside
        this one that has any. None if no credit has, or several have."""
        found = [credit for credit in _credits(self) if "value_target" in credit.all_writes]
        return found[0].value_target(experience) if len(found) == 1 else None

    def credited(self, experience: Experience) -> Experience:
        """Returns the batch with its `advantage`, its `value_target` if this credit has one, and any other field that
        this credit writes for the objective."""
        return self._with_target(experience.replace(advantage=self(experience)))

    def _with_target(self, experience: Experience) -> Experience:
        target = self.value_target(experience)
        return experience if target is None else experience.replace(value_target=target)


def _credits(part: Part) -> Iterator[Credit]:
    """Yields the credits inside a part, but none inside these."""
    for child in part.active_children():
        if isinstance(child, Credit):
            yield child
        else:
            yield from _credits(child)


class Baseline(Part):
    """`baseline(experience, returns [B]) -> [B]`: the value that is subtracted from each row's return."""

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        raise NotImplementedError


class Scale(Part):
    """`scale(experience, returns [B]) -> [B]`: the unit in which an advantage is measured, > 0."""

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        raise NotImplementedError


Unit = Literal["row", "token", "leaf"]


def row_weights(experience: Experience, unit: Unit) -> Tensor | None:
    """Returns how often each row counts in a statistic of its group, [B]: once for each token, or, as a leaf of a tree,
    by `extras["leaf_weight"]`. None is once each."""
    if unit == "leaf":
        weight: Tensor = experience.extras["leaf_weight"]
        return weight
    return experience.lengths if unit == "token" else None


def fields_of_unit(unit: Unit) -> frozenset[str]:
    """Returns the fields of a batch that `row_weights` reads."""
    return frozenset({"extras.leaf_weight"} if unit == "leaf" else ())
