"""The policies beside the one that learns, as far as a stage's algorithm reads what they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.policies.language import LanguagePolicy
from polopt.training.run import Run
from polopt.training.teach import Teacher


@dataclasses.dataclass(frozen=True)
class Beside:
    """reference: the policy as it was when the stage began. teacher: its moving average, told more than it was."""

    reference: LanguagePolicy | None
    teacher: Teacher | None

    @classmethod
    def of(cls, policy: LanguagePolicy, algorithm: Algorithm, rows: int | None) -> Self:
        """From the policy as it is. rows: as `Teacher`."""
        reference = policy.frozen() if "ref_logp" in algorithm.all_needs else None
        teacher = Teacher(policy, algorithm.teacher, rows) if algorithm.teacher is not None else None
        return cls(reference, teacher)

    def begin(self, run: Run, stage: str) -> None:
        """Keep what stays the same all through the stage."""
        if self.reference is not None:
            run.keep(f"reference-{stage}", parameters(self.reference))

    def resume(self, run: Run, stage: str, tensors: Mapping[str, Tensor]) -> None:
        """As they were at a checkpoint of the stage."""
        if self.reference is not None:
            load_parameters(self.reference, run.kept(f"reference-{stage}"))
        if self.teacher is not None:
            self.teacher.load(tensors)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {} if self.teacher is None else self.teacher.state()


def parameters(policy: LanguagePolicy) -> dict[str, Tensor]:
    """Parameters by name, tied ones once."""
    return {name: p.detach() for name, p in policy.named_parameters()}


@torch.no_grad()
def load_parameters(policy: LanguagePolicy, tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `parameters`."""
    for name, parameter in policy.named_parameters():
        parameter.copy_(tensors[name])
