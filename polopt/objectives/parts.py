"""The kinds of part that an objective is composed of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import ExperienceError, describe
from polopt.part import Part
from polopt.part_names import name_of
from polopt.schedules import Schedule
from polopt.values import check_values


class Objective(Part):
    """`objective(experience, evaluation) -> Loss`, to be minimised.

    reads_logp: whether the policy's log-probabilities of the logged decisions are read; `evaluation.logp` may be 0
    where they are not.
    """

    reads_logp: ClassVar[bool] = True

    def __call__(self, experience: Experience, evaluation: Evaluation) -> Loss:
        name = name_of(type(self))
        if not isinstance(evaluation, Evaluation):
            raise ExperienceError(
                f"{name} needs the policy's log-probabilities as po.Evaluation(logp=...), found {describe(evaluation)}"
            )
        evaluation.check(experience.mask)
        check_values(experience, name, evaluation, experience.place())
        if self.active_fields("full_batch_outputs"):
            experience = experience.with_full_batch_evaluation(evaluation)
        return super().__call__(experience, evaluation)

    def of_checked(self, experience: Experience, evaluation: Evaluation) -> Loss:
        """Returns the loss of a batch whose values were checked before, without waiting for the device."""
        found: Loss = super().__call__(experience, evaluation)
        return found

    def contributes(self, experience: Experience) -> Tensor:
        """Returns [B] bool, False for rows whose terms are exactly 0 with zero gradient: these need no evaluation."""
        return experience.mask.any(1)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        raise NotImplementedError


class Ratio(Part):
    """`ratio(experience, evaluation) -> [B, T]` log of the importance ratio, with gradient."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


class SurrogateTerm(Part):
    """`trust(log_ratio, experience, evaluation) -> ([B, T] loss terms, [B, T] share held back)`.

    A limit on the policy's change by one batch. The second tensor is 1 where the trust region, not the
    advantage, determines the gradient; its mean is logged as `clip_fraction`.

    zero_at_zero_advantage: whether a decision of advantage 0 gives a term of 0 with zero gradient, so that rows of such
    decisions need not be evaluated.
    """

    zero_at_zero_advantage: ClassVar[bool] = False

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def measured(self) -> dict[str, Tensor]:
        """Returns scalars of the whole optimiser batch that the last call computed, by name, to be logged."""
        return {}


class Weight(Part):
    """`weight(experience, evaluation) -> [B, T]` factor on each term, without gradient."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


class Regulariser(Part):
    """`regulariser(experience, evaluation) -> [B, T]` terms, added to the objective times `coefficient`, a number or
    a schedule."""

    coefficient: float | Schedule = 1.0

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


class Aggregate(Part):
    """Reducer of per-decision terms to a scalar: weights [B, T] over a denominator of the whole batch."""

    def weights(self, experience: Experience) -> Tensor:
        """Returns the weights, [B, T], 0 outside the mask."""
        raise NotImplementedError

    def denominator(self, full_batch: Experience) -> Tensor:
        """Returns a count over the whole optimiser batch; counts of parts of a batch add up to the batch's."""
        raise NotImplementedError

    def forward(self, experience: Experience, terms: Tensor) -> Tensor:
        weights = self.weights(experience).to(terms)
        return ops.reduce(terms, weights, self.denominator(experience.denominator_batch).to(terms))


def full_batch_of(experience: Experience) -> tuple[Experience, Evaluation]:
    """Returns the whole optimiser batch and its evaluation under the current policy; 0 off the mask."""
    full_batch = experience.full_batch.zero_masked()
    return full_batch, full_batch.full_batch_evaluation.zero_masked(full_batch.mask)


def unused(name: str, metrics: Mapping[str, object]) -> str:
    """Returns `name`, or the first of name/2, name/3, ... that is not in `metrics`."""
    names = (name if i == 1 else f"{name}/{i}" for i in itertools.count(1))
    return next(n for n in names if n not in metrics)
