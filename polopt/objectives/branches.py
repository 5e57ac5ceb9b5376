"""Different losses for different rows, or decisions, of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.objectives.parts import Objective, unused
from polopt.part import Part
from polopt.schedules import Schedule, now


class RowMask(Part):
    """`rows(experience) -> [B] or [B, T] bool`: mask of the rows, or of the decisions, of a branch. The argument is
    the whole optimiser batch."""

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class IsDemonstration(RowMask):
    """Selects demonstrated rows, see `Experience.is_demonstration`; `invert` selects the others."""

    invert: bool = False

    def forward(self, experience: Experience) -> Tensor:
        return experience.is_demonstration != self.invert


class IsCorrect(RowMask):
    """Selects rows whose outcome reaches `threshold`; `invert` selects the others."""

    threshold: float = 1.0
    invert: bool = False

    reads = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        return (experience.outcome >= self.threshold) != self.invert


class HasTeacher(RowMask):
    """Selects rows with a teacher's signal, `extras["has_teacher_signal"]` [B] bool; with `below`, only those whose
    outcome is smaller than it. `invert` selects the others.

    With a teacher that reads another row's right answer, `below=1.0` selects the wrong rows of groups with a right one.
    Source: SRPO, arXiv:2604.02288.
    """

    below: float | None = None
    invert: bool = False

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras.has_teacher_signal"} | ({"outcome"} if self.below is not None else set()))

    def forward(self, experience: Experience) -> Tensor:
        rows = experience.extras["has_teacher_signal"]
        if self.below is not None:
            rows = rows & (experience.outcome < self.below)
        return rows != self.invert


class FieldMask(RowMask):
    """Selects rows or decisions by a recorded flag, `extras[name]`, [B] or [B, T] bool; `invert` selects the others."""

    name: str
    invert: bool = False

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.extras[self.name] != self.invert


class Finished(RowMask):
    """Selects decisions whose episode is over, terminated or truncated, by the end of the row; `invert` selects the
    others.
    """

    invert: bool = False

    reads = frozenset({"terminated", "truncated"})

    def forward(self, experience: Experience) -> Tensor:
        over = torch.zeros_like(experience.mask)
        for flag in (experience.terminated, experience.truncated):
            over = over | (flag if flag.ndim == 2 else flag[:, None])
        later = (over & experience.mask).flip(1).cumsum(1).flip(1) > 0  # at this decision, or at a later one
        return later != self.invert


class Branch(Part):
    """An objective for some rows, or decisions. rows: None for all. weight: factor on the objective, a number or a
    schedule."""

    objective: Objective
    rows: RowMask | None = None
    weight: float | Schedule = 1.0


class BranchedObjective(Objective):
    """sum_k weight_k objective_k(the rows of route k). Each objective gets a batch in which only its rows hold
    decisions.

    count: the rows in its denominators: "own", those rows alone; "all", the rows of every route, so that a decision
    has the same weight on every route.
    """

    routes: Sequence[Branch]
    count: Literal["own", "all"] = "own"

    def setup(self) -> None:
        if not len(self.routes):
            raise ValueError("objectives.BranchedObjective needs at least one route, found none")

    def contributes(self, experience: Experience) -> Tensor:
        parts = self._divided(experience)
        asked = [route.objective.contributes(part) for route, part in zip(self.routes, parts, strict=True)]
        return torch.stack(asked).any(0)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        loss, metrics = evaluation.logp.new_zeros(()), dict[str, Tensor]()
        for route, own in zip(self.routes, self._divided(experience), strict=True):
            part = route.objective(own, evaluation)
            loss = loss + now(route.weight) * part.loss
            for name, value in part.metrics.items():
                metrics[unused(name, metrics)] = value
        return Loss(loss, metrics)

    def _divided(self, experience: Experience) -> list[Experience]:
        """Returns the batch of each route."""
        whole = experience.full_batch
        chosen = [self._rows(route, whole) for route in self.routes]
        counted = whole.restrict(_union(chosen)) if self.count == "all" else None
        return [experience.restrict(rows, counted) for rows in chosen]

    def _rows(self, route: Branch, whole: Experience) -> Tensor:
        if route.rows is None:
            return whole.mask.new_ones(len(whole))
        rows = route.rows(whole)
        if rows.dtype != torch.bool or rows.shape not in (whole.mask.shape, whole.mask.shape[:1]):
            raise ExperienceError(
                f"{route.rows!r} must return bool of shape [{len(whole)}] or {list(whole.mask.shape)}, found "
                f"{rows.dtype} {list(rows.shape)}"
            )
        return rows


def _union(chosen: Sequence[Tensor]) -> Tensor:
    """Returns the union of masks: of rows [B], or of decisions [B, T] if one of them is."""
    if any(rows.ndim == 2 for rows in chosen):
        chosen = torch.broadcast_tensors(*(rows if rows.ndim == 2 else rows[:, None] for rows in chosen))
    return torch.stack(list(chosen)).any(0)
