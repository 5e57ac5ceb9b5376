"""Different losses for different rows, or decisions, of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.features import Mask
from polopt.objectives.parts import Objective, unused
from polopt.part import Part
from polopt.schedules import Schedule, now


class Branch(Part):
    """An objective for some rows, or decisions. rows: None for all. weight: factor on the objective, a number or a
    schedule."""

    objective: Objective
    rows: Mask | None = None
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
        return whole.mask.new_ones(len(whole)) if route.rows is None else route.rows(whole)


def _union(chosen: Sequence[Tensor]) -> Tensor:
    """Returns the union of masks: of rows [B], or of decisions [B, T] if one of them is."""
    if any(rows.ndim == 2 for rows in chosen):
        chosen = torch.broadcast_tensors(*(rows if rows.ndim == 2 else rows[:, None] for rows in chosen))
    return torch.stack(list(chosen)).any(0)
