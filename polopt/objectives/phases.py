"""Schedules of objectives, and metrics of decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import check_shape
from polopt.objectives.parts import Objective, unused
from polopt.part import Part


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
        mask, whole = read(experience), experience.full_batch
        decisions = read(whole).sum().clamp(min=1).to(mask.device)
        metrics = dict(metrics)
        with torch.no_grad():
            for gauge in self.gauges:
                values = check_shape(gauge(experience, evaluation), mask, gauge).detach()
                metrics[unused(type(gauge).__name__, metrics)] = ops.masked_sum(values, mask) / decisions
        return Loss(loss, metrics)
