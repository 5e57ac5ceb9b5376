"""A teacher made of two frozen policies that a stage names."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.policies.language import LanguagePolicy
from polopt.teachers import ContrastTeacher, contrasted
from polopt.training.process_group import ProcessGroup


class ContrastModels:
    """The teacher with the settings `spec`, of the policies by the fields that they fill in.

    rows: rows per forward pass, None for all. record: of the latest batch, the mean weight of the contrast over
    decisions ("teacher/extrapolation").
    """

    def __init__(
        self,
        spec: ContrastTeacher,
        policies: Mapping[str, LanguagePolicy],
        rows: int | None,
        team: ProcessGroup | None = None,
    ) -> None:
        self.spec, self.policies, self.rows = spec, policies, rows
        self.team = ProcessGroup() if team is None else team
        self.record: dict[str, float] = {}

    def teach(self, experience: Experience, names: frozenset[str]) -> Experience:
        """Computes those of `teachers.CONTRAST_FIELDS` that are among `names`."""
        found = contrasted(experience, names | {"extras.extrapolation"}, self.spec, self._evaluate)
        weight = torch.where(found.mask, found.extras["extrapolation"], 0).double()
        self.record = {"teacher/extrapolation": float(weight.sum() / found.mask.sum().clamp(min=1))}
        return found

    def _evaluate(self, field: str, batch: Experience, outputs: frozenset[str], top: int) -> Evaluation:
        return self.team.evaluate_sharded(self.policies[field], batch, self.rows or len(batch), set(outputs), top=top)

    def follow(self) -> None:
        """Both policies are frozen."""

    def state(self) -> dict[str, Tensor]:
        """Returns nothing: both policies are the stage's, which names them again."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """There is nothing to restore."""
