"""Objectives around other objectives: for some rows, for some time, with further metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.features import IsDemonstration, Mask
from polopt.fields import check_shape
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.parts import Objective, Weight, unused
from polopt.objectives.surrogate import Surrogate
from polopt.objectives.surrogate_terms import PolicyGradient
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
        contributing = [route.objective.contributes(part) for route, part in zip(self.routes, parts, strict=True)]
        return torch.stack(contributing).any(0)

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
        full_batch = experience.full_batch
        chosen = [self._rows(route, full_batch) for route in self.routes]
        counted = full_batch.restrict(_union(chosen)) if self.count == "all" else None
        return [experience.restrict(rows, counted) for rows in chosen]

    def _rows(self, route: Branch, full_batch: Experience) -> Tensor:
        return full_batch.mask.new_ones(len(full_batch)) if route.rows is None else route.rows(full_batch)


def _union(chosen: Sequence[Tensor]) -> Tensor:
    """Returns the union of masks: of rows [B], or of decisions [B, T] if one of them is."""
    if any(rows.ndim == 2 for rows in chosen):
        chosen = torch.broadcast_tensors(*(rows if rows.ndim == 2 else rows[:, None] for rows in chosen))
    return torch.stack(list(chosen)).any(0)


def with_imitation(
    objective: Objective,
    weight: float | Schedule,
    *,
    rollout_weight: float | Schedule = 1.0,
    token_weights: Sequence[Weight] = (),
) -> BranchedObjective:
    """Returns rollout_weight * objective on the rollouts + weight * the mean over the demonstrations' tokens of -logp.

    Each mean is over its own rows. token_weights: factors on the terms of the demonstrations' tokens.
    """
    likelihood = Surrogate(ratio=None, trust=PolicyGradient(), weights=token_weights, aggregate=TokenMean())
    return BranchedObjective(
        routes=[
            Branch(objective=objective, rows=IsDemonstration(invert=True), weight=rollout_weight),
            Branch(objective=likelihood, rows=IsDemonstration(), weight=weight),
        ]
    )


class Phase(Part):
    """A phase of training: `objective` for a number of `batches`; None for all that are left."""

    objective: Objective
    batches: int | None = None

    def setup(self) -> None:
        if self.batches is not None and self.batches < 0:
            raise ValueError(f"objectives.Phase: batches must be >= 0 or None, found {self.batches}")


class ObjectiveSchedule(Objective):
    """A sequence of objectives, by the number of batches learned from. Only the present one is active: the outputs and
    fields that the others declare are not computed.

    Raises:
        ValueError: no phases; or the last one ends, or an earlier one does not.
    """

    phases: Sequence[Phase]

    def setup(self) -> None:
        lengths = [phase.batches for phase in self.phases]
        if not lengths or lengths[-1] is not None or None in lengths[:-1]:
            raise ValueError(
                "objectives.ObjectiveSchedule needs a number of batches for each phase but the last, which has "
                "None, found "
                f"{lengths}"
            )
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def on_step(self) -> None:
        self.get_buffer("batches").add_(1)

    @property
    def present(self) -> Objective:
        """Returns the objective of the next batch."""
        left = int(self.get_buffer("batches"))
        for phase in self.phases[:-1]:
            left -= phase.batches or 0
            if left < 0:
                return phase.objective
        return self.phases[-1].objective

    def active_children(self) -> Iterator[Part]:
        yield self.present

    def contributes(self, experience: Experience) -> Tensor:
        return self.present.contributes(experience)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        return self.present(experience, evaluation)


class DecisionMetric(Part):
    """`gauge(experience, evaluation) -> [B, T]`: a metric of each decision."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


class WithMetrics(Objective):
    """An objective with additional metrics: the gauges' means over the decisions of its contributing rows."""

    objective: Objective
    gauges: Sequence[DecisionMetric]

    def contributes(self, experience: Experience) -> Tensor:
        return self.objective.contributes(experience)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        loss, metrics = self.objective(experience, evaluation)
        read = lambda e: e.mask & self.contributes(e)[:, None]  # noqa: E731
        mask, full_batch = read(experience), experience.full_batch
        decisions = read(full_batch).sum().clamp(min=1).to(mask.device)
        metrics = dict(metrics)
        with torch.no_grad():
            for gauge in self.gauges:
                values = check_shape(gauge(experience, evaluation), mask, gauge).detach()
                metrics[unused(type(gauge).__name__, metrics)] = ops.masked_sum(values, mask) / decisions
        return Loss(loss, metrics)
