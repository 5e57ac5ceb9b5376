"""The order of one training step, which every loop takes: provide, credit, select, update, count, follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from polopt.algorithm import Algorithm
from polopt.experience import Experience


class StepResult(NamedTuple):
    """One batch after its step.

    credited: all of its rows, with rewards and advantages. chosen: what was learned from. metrics: of the update.
    """

    credited: Experience
    chosen: Experience
    metrics: Mapping[str, float]


class StepHooks:
    """What differs from loop to loop in a training step; see `take_step`."""

    def provide(self, experience: Experience) -> Experience:
        """Returns the batch with the fields that parts read and only the loop can compute: log-probabilities of other
        policies, values, a teacher's signal."""
        return experience

    def with_advantages(self, algorithm: Algorithm, experience: Experience) -> Experience:
        """Returns the batch with rewards and advantages."""
        return algorithm.with_advantages(experience)

    def on_credited(self, experience: Experience) -> None:
        """Records a batch that has rewards and advantages."""

    def begin_update(self, experience: Experience, chosen: Experience) -> None:
        """Runs before the policy moves: keeps the policy as it is, for the next batch's `prev_logp`; measures the
        credited batch and the rows chosen from it."""

    def update(self, experience: Experience) -> Mapping[str, float]:
        """Moves the policy by a batch with advantages that has decisions. Returns what it measured."""
        raise NotImplementedError

    def end_update(self) -> None:
        """Moves the policies that follow the learned one, the teacher's average and the reference, after the
        algorithm has counted the batch."""


def take_step(algorithm: Algorithm, experience: Experience, hooks: StepHooks) -> StepResult | None:
    """Learns from one batch that `algorithm.sampling` has made.

    Fields are provided, rows credited and selected, the policy is updated; then the algorithm counts the batch, and
    the policies that follow the learned one move. A batch of which selection leaves nothing is counted without an
    update. A batch that filters of the sampling left empty is no batch: nothing is computed or counted, and None
    returned.
    """
    if not experience.mask.any():
        return None
    credited = hooks.with_advantages(algorithm, hooks.provide(experience))
    hooks.on_credited(credited)
    chosen = algorithm.filtered(credited)
    hooks.begin_update(credited, chosen)
    metrics = hooks.update(chosen) if chosen.mask.any() else {}
    algorithm.step()
    hooks.end_update()
    return StepResult(credited, chosen, metrics)
