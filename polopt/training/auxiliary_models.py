"""The auxiliary policies of a stage, frozen references and a teacher, as far as its algorithm reads their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.policies.language import LanguagePolicy
from polopt.sampling import OpponentPolicy
from polopt.teachers import ContrastTeacher, SelfTeacher, TeacherSpec
from polopt.training.contrast_model import ContrastModels
from polopt.training.process_group import ProcessGroup
from polopt.training.reference_policy import References, load_parameters, parameters_of, wholly
from polopt.training.run import Run
from polopt.training.teacher_model import Teacher


class AuxiliaryModels:
    """The auxiliary policies of a stage. references: the frozen policies that the algorithm compares with, those in
    `named` among them. compared: field -> policy, of those of them whose log-probabilities of the decisions some part
    reads; a teacher evaluates its own. teacher: a moving average of the policy that reads a hint after the prompt, or
    two of the frozen policies; None if the algorithm has none. rows: as `Teacher`."""

    def __init__(
        self,
        policy: LanguagePolicy,
        algorithm: Algorithm,
        rows: int | None,
        team: ProcessGroup | None = None,
        named: Mapping[str, LanguagePolicy] = MappingProxyType({}),
    ) -> None:
        self.references = References(policy, algorithm, named)
        self.teacher = self._teacher(policy, algorithm.teacher, rows, team)
        # A teacher evaluates its policies itself, and an opponent's are sampled from.
        readers = (p for p in algorithm.parts() if not isinstance(p, TeacherSpec | OpponentPolicy))
        compared = frozenset[str]().union(*(p.reads for p in readers))
        self.compared = {field: p for field, p in self.references.policies.items() if field in compared}

    def _teacher(
        self, policy: LanguagePolicy, spec: TeacherSpec | None, rows: int | None, team: ProcessGroup | None
    ) -> Teacher | ContrastModels | None:
        if isinstance(spec, ContrastTeacher):
            return ContrastModels(spec, self.references.policies, rows, team)
        return Teacher(policy, spec, rows, team) if isinstance(spec, SelfTeacher) else None

    def begin(self, run: Run, stage: str) -> None:
        """Stores the weights that stay the same all through the stage in the run's folder."""
        if self.references.fixed is not None:
            run.keep(f"reference-{stage}", wholly(parameters_of(self.references.fixed)))

    def resume(self, run: Run, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """Restores the auxiliary policies from a checkpoint of the stage."""
        self.references.load(tensors)
        if self.references.fixed is not None:
            load_parameters(self.references.fixed, run.kept(f"reference-{stage}"))
        if self.teacher is not None:
            self.teacher.load(tensors)

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors that a checkpoint must hold."""
        return self.references.state() | ({} if self.teacher is None else self.teacher.state())

    def begin_update(self) -> None:
        """Prepares for an update: called before the policy learns from a batch."""
        self.references.begin_update()

    def end_update(self) -> None:
        """Moves the reference and the teacher: called after the policy and the algorithm's counters have advanced by a
        batch."""
        self.references.end_update()
        if self.teacher is not None:
            self.teacher.follow()
