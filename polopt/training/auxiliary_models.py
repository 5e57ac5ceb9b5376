"""The policies beside the one that learns, as far as a stage's algorithm reads what they say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.policies.language import LanguagePolicy
from polopt.training.process_group import ProcessGroup
from polopt.training.reference_policy import References, load_parameters, parameters_of, wholly
from polopt.training.run import Run
from polopt.training.teacher_model import Teacher


class Beside:
    """references: the frozen policies that the algorithm compares with, those in `named` among them. teacher: a moving
    average of the policy, told more than it was; None if the algorithm has none. rows: as `Teacher`."""

    def __init__(
        self,
        policy: LanguagePolicy,
        algorithm: Algorithm,
        rows: int | None,
        team: ProcessGroup | None = None,
        named: Mapping[str, LanguagePolicy] = MappingProxyType({}),
    ) -> None:
        self.references = References(policy, algorithm, named)
        self.teacher = Teacher(policy, algorithm.teacher, rows, team) if algorithm.teacher is not None else None

    def begin(self, run: Run, stage: str) -> None:
        """Keep what stays the same all through the stage."""
        if self.references.fixed is not None:
            run.keep(f"reference-{stage}", wholly(parameters_of(self.references.fixed)))

    def resume(self, run: Run, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """As they were at a checkpoint of the stage."""
        self.references.load(tensors)
        if self.references.fixed is not None:
            load_parameters(self.references.fixed, run.kept(f"reference-{stage}"))
        if self.teacher is not None:
            self.teacher.load(tensors)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return self.references.state() | ({} if self.teacher is None else self.teacher.state())

    def begin_update(self) -> None:
        """The policy is about to learn from a batch."""
        self.references.begin_update()

    def end_update(self) -> None:
        """The policy has learned from a batch, and the algorithm has been told."""
        self.references.end_update()
        if self.teacher is not None:
            self.teacher.follow()
