"""The steps of one stage: each batch's fields, advantages and selection are computed, and the policy is updated."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.stepping import StepHooks, take_step
from polopt.training.auxiliary_models import AuxiliaryModels
from polopt.training.batches import RolloutBatch, collect, usage_since
from polopt.training.domain import Domain
from polopt.training.learner import Learner
from polopt.training.measure import metrics_of
from polopt.training.process_group import ProcessGroup
from polopt.training.run import Run
from polopt.training.specs import StageSpec


class StageLearning:
    """The learning of one stage, each step in the order of `stepping.take_step`.

    source: of the stage's experience. generator: shuffles minibatches. credited: called with each credited batch and
    its step. named: frozen policies that the stage names, as `References` takes them. selected: called with the
    selected rows of each batch, and its step.
    """

    def __init__(
        self,
        domain: Domain,
        algorithm: Algorithm,
        stage: StageSpec,
        source: Any,
        generator: Generator,
        team: ProcessGroup | None = None,
        credited: Callable[[Experience, int], None] = lambda experience, step: None,
        named: Mapping[str, Any] = MappingProxyType({}),
        selected: Callable[[Experience, int], None] = lambda experience, step: None,
    ) -> None:
        self.domain, self.algorithm, self.source, self.credited = domain, algorithm, source, credited
        self.selected = selected
        self.team = ProcessGroup() if team is None else team
        self.learner = Learner(domain.learned, algorithm, stage, generator, team)
        self.auxiliary_models = AuxiliaryModels(domain.learned, algorithm, stage.micro_rows, team, named)
        if any("mixtures" in part.source_capabilities for part in algorithm.parts()):
            source.player.policies = self.auxiliary_models.references.policies

    def begin(self, run: Run, stage: str) -> None:
        """Begins the stage anew."""
        self.auxiliary_models.begin(run, stage)

    def resume(self, run: Run, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """Restores the stage from a checkpoint's tensors."""
        self.learner.load(tensors)
        self.auxiliary_models.resume(run, stage, tensors)

    def state(self) -> dict[str, Tensor]:
        """Returns what a checkpoint must hold, by name."""
        return self.learner.state() | self.auxiliary_models.state()

    def begin_batch(self) -> None:
        """Prepares the policy for the sampling of the next batch."""
        self.learner.begin_batch()

    def step(self, step: int) -> dict[str, Any]:
        """Samples one batch and learns from it."""
        self.begin_batch()
        return self.learn(collect(self.source, self.algorithm.sampling), step)

    def learn(self, batch: RolloutBatch, step: int) -> dict[str, Any]:
        """Learns from one batch as step number `step` of the stage. Returns the step's metrics; those of a batch that
        filters left empty are its cost alone."""
        before, hooks = self.source.usage(), _Hooks(self, step)
        found = take_step(self.algorithm, batch.experience, hooks)
        self.learner.stepper.end_batch()
        if found is None:
            return {"rows": 0, "sampled": batch.spent["sampled"], **failures(batch.spent)}
        record = {"rows": len(found.chosen), **hooks.described, **batch.metrics, **hooks.measured, **found.metrics}
        if self.auxiliary_models.teacher is not None:
            record |= self.auxiliary_models.teacher.record
        spent = {name: value + batch.spent[name] for name, value in usage_since(before, self.source).items()}
        seconds = time.perf_counter() - hooks.begun
        record |= {"tokens": int(found.credited.mask.sum()), "seconds/learn": seconds}
        return record | {name: value for name, value in spent.items() if value or not name.startswith("episodes/")}

    def provide(self, experience: Experience) -> Experience:
        """Computes the fields that some part of the algorithm reads, and no others."""
        fields = self.algorithm.active_fields("reads")
        experience = self.domain.provide(experience, fields, self.source, self.learner)
        others, teacher = self.auxiliary_models.compared, self.auxiliary_models.teacher
        if fields & {"old_logp", "value"} or others or any(name.startswith(OLD) for name in fields):
            experience = self.learner.assess(experience, fields, others)
        if teacher is not None and fields & teacher.spec.signals:
            experience = teacher.teach(experience, fields & teacher.spec.signals)
        return experience


class _Hooks(StepHooks):
    """The hooks of one step of a stage: they update the learner and move the auxiliary policies.

    described, measured: metrics of the credited batch, from the domain and from the parts of reward and credit. begun:
    the clock's time at which learning began.
    """

    def __init__(self, stage: StageLearning, step: int) -> None:
        self.stage, self.number, self.begun = stage, step, 0.0
        self.described: dict[str, Any] = {}
        self.measured: dict[str, float] = {}

    def provide(self, experience: Experience) -> Experience:
        return self.stage.provide(experience)

    def with_advantages(self, algorithm: Algorithm, experience: Experience) -> Experience:
        return self.stage.team.with_advantages(algorithm, experience)

    def on_credited(self, experience: Experience) -> None:
        self.stage.credited(experience, self.number)

    def begin_update(self, experience: Experience, chosen: Experience) -> None:
        self.stage.selected(chosen, self.number)
        self.begun = time.perf_counter()
        self.described = self.stage.domain.describe(experience)
        for part in (self.stage.algorithm.reward, self.stage.algorithm.credit):
            self.measured |= metrics_of(part, experience)
        self.stage.auxiliary_models.begin_update()

    def update(self, experience: Experience) -> dict[str, float]:
        return self.stage.learner.update(experience, self.number)

    def end_update(self) -> None:
        self.stage.auxiliary_models.end_update()


def failures(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the counts of episodes that went wrong, those that are not 0."""
    return {name: value for name, value in record.items() if name.startswith("episodes/") and value}
