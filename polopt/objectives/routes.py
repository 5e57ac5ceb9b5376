"""Different losses for different rows of one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.experience import Evaluation, Experience, ExperienceError, Loss
from polopt.objectives.parts import Objective, unused
from polopt.part import Part
from polopt.schedules import Schedule, now


class Rows(Part):
    """`rows(experience) -> [B] bool`: which rows a route is for. It sees the whole optimiser batch."""

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class Demonstrated(Rows):
    """Rows that somebody else decided, `extras["demonstrated"]` [B] bool; `invert` turns it round. A batch without
    the mark holds no demonstrations."""

    invert: bool = False

    def forward(self, experience: Experience) -> Tensor:
        shown = experience.extras.get("demonstrated", torch.zeros(len(experience), dtype=torch.bool))
        return shown.to(experience.device) != self.invert


class Solved(Rows):
    """Rows whose outcome reaches `threshold`; `invert` turns it round."""

    threshold: float = 1.0
    invert: bool = False

    needs = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        return (experience.outcome >= self.threshold) != self.invert


class Route(Part):
    """Where some rows go. rows: None for all. weight: factor on the objective, a number or a schedule."""

    objective: Objective
    rows: Rows | None = None
    weight: float | Schedule = 1.0


class Routed(Objective):
    """sum_k weight_k objective_k(the rows of route k). Each objective sees a batch in which nothing but its rows
    holds decisions, so its denominators count its own."""

    routes: Sequence[Route]

    def setup(self) -> None:
        if not len(self.routes):
            raise ValueError("objectives.Routed needs at least one route, found none")

    def contributes(self, experience: Experience) -> Tensor:
        asked = [route.objective.contributes(self._own(route, experience)) for route in self.routes]
        return torch.stack(asked).any(0)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        loss, metrics = evaluation.logp.new_zeros(()), dict[str, Tensor]()
        for route in self.routes:
            part = route.objective(self._own(route, experience), evaluation)
            loss = loss + now(route.weight) * part.loss
            for name, value in part.metrics.items():
                metrics[unused(name, metrics)] = value
        return Loss(loss, metrics)

    def _own(self, route: Route, experience: Experience) -> Experience:
        if route.rows is None:
            return experience
        keep = route.rows(experience.whole)
        if keep.dtype != torch.bool or keep.shape != experience.whole.mask.shape[:1]:
            raise ExperienceError(
                f"{route.rows!r} must return bool of shape [{len(experience.whole)}], found {keep.dtype} "
                f"{list(keep.shape)}"
            )
        return experience.only(keep)
