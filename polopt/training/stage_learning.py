"""One stage of an algorithm: each batch is completed, credited, selected and learned from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.teachers import TEACHER_FIELDS
from polopt.training.auxiliary_models import Beside
from polopt.training.batches import RolloutBatch, collect, usage_since
from polopt.training.domain import Domain
from polopt.training.learner import Learner
from polopt.training.measure import metrics_of
from polopt.training.process_group import ProcessGroup
from polopt.training.run import Run
from polopt.training.specs import StageSpec


class StageLearning:
    """The steps of one stage: provide, credit, select, update, advance.

    source: of the stage's experience. generator: shuffles minibatches. credited: called with each credited
    batch and its step. named: frozen policies that the stage names, as `References` takes them. selected: called with
    what of each batch is learned from, and its step.
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
        self.beside = Beside(domain.learned, algorithm, stage.micro_rows, team, named)

    def begin(self, run: Run, stage: str) -> None:
        """Begins the stage anew."""
        self.beside.begin(run, stage)

    def resume(self, run: Run, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """Restores the stage from a checkpoint's tensors."""
        self.learner.load(tensors)
        self.beside.resume(run, stage, tensors)

    def state(self) -> dict[str, Tensor]:
        """Returns what a checkpoint must hold, by name."""
        return self.learner.state() | self.beside.state()

    def step(self, step: int) -> dict[str, Any]:
        """Samples one batch and learns from it."""
        return self.learn(collect(self.source, self.algorithm.sampling), step)

    def learn(self, batch: RolloutBatch, step: int) -> dict[str, Any]:
        """Learns from one batch as step number `step` of the stage. Returns the step's metrics; those of a batch that
        filters left empty are its cost alone."""
        algorithm, experience = self.algorithm, batch.experience
        if not experience.mask.any():
            return {"rows": 0, "sampled": batch.spent["sampled"], **failures(batch.spent)}
        before = self.source.usage()
        experience = self.team.with_advantages(algorithm, self._provide(experience))
        self.credited(experience, step)
        chosen = algorithm.filtered(experience)
        self.selected(chosen, step)
        sampled = time.perf_counter()
        record = {"rows": len(chosen), **self.domain.describe(experience), **batch.metrics}
        for part in (algorithm.reward, algorithm.credit):
            record |= metrics_of(part, experience)
        self.beside.begin_update()
        record |= self.learner.update(chosen, step) if chosen.mask.any() else {}
        algorithm.step()
        if self.beside.teacher is not None:
            record |= self.beside.teacher.record
        self.beside.end_update()
        spent = {name: value + batch.spent[name] for name, value in usage_since(before, self.source).items()}
        record |= {"tokens": int(experience.mask.sum()), "seconds/learn": time.perf_counter() - sampled}
        return record | {name: value for name, value in spent.items() if value or not name.startswith("episodes/")}

    def _provide(self, experience: Experience) -> Experience:
        """Computes the fields that some part of the algorithm reads, and no others."""
        fields = self.algorithm.active_fields("reads")
        experience = self.domain.provide(experience, fields, self.source, self.learner)
        others, teacher = self.beside.references.policies, self.beside.teacher
        if fields & {"old_logp", "value"} or others or any(name.startswith(OLD) for name in fields):
            experience = self.learner.assess(experience, fields, others)
        if teacher is not None and fields & TEACHER_FIELDS:
            experience = teacher.teach(experience, fields & TEACHER_FIELDS)
        return experience


def failures(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the counts of episodes that went wrong, those that are not 0."""
    return {name: value for name, value in record.items() if name.startswith("episodes/") and value}
