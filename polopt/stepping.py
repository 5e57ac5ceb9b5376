"""The order of one training step, common to all loops: fields, credit, selection, update, counters, reference
policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from polopt.algorithm import Algorithm
from polopt.experience import Experience


class StepResult(NamedTuple):
    """One batch after its step.

    credited: all of its rows, with rewards and advantages.
    chosen: the selected rows, which the update used.
    metrics: of the update.
    """

    credited: Experience
    chosen: Experience
    metrics: Mapping[str, float]


class StepHooks:
    """The operations of a training step that differ between loops; see `take_step`."""

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
        """Runs before the policy's update: stores the policy for the next batch's `prev_logp`, and measures the
        credited batch and the rows chosen from it."""

    def update(self, experience: Experience) -> Mapping[str, float]:
        """Updates the policy on a batch with advantages that has decisions, and returns metrics."""
        raise NotImplementedError

    def end_update(self) -> None:
        """Updates the averages of the policy, the teacher's and the reference, after the algorithm has counted the
        batch."""


def take_step(algorithm: Algorithm, experience: Experience, hooks: StepHooks) -> StepResult | None:
    """Trains on one batch that `algorithm.sampling` has made.

    Fields are added, advantages computed, rows selected and the policy updated; then the algorithm counts the batch,
    and the averages of the policy are updated. A batch without selected decisions is counted without an update. For a
    batch that the sampling's filters left empty nothing is computed or counted, and the result is None.
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
