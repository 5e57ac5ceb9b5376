"""The interface of judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from polopt.part import Part
from polopt.part_names import name_of


class Judgement(NamedTuple):
    """A judge's result for a batch.

    scores: [B].
    details: further output of the judge for each row, for inspection.
    """

    scores: Tensor
    details: list[dict[str, Any]]


class Judge(Part):
    """A part that scores texts: `judge(prompts, answers, references=None) -> Judgement`, one number each, higher is
    better.

    Each row is scored alone: no score depends on the other rows of the batch.

    compares: whether the judge reads a reference, a known good answer.
    """

    tags = frozenset({"reward_source=model"})

    compares: ClassVar[bool] = False

    def __call__(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        self._check(prompts, answers, references)
        return super().__call__(prompts, answers, references)

    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        raise NotImplementedError

    def _check(self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None) -> None:
        """Checks that the texts match in number.

        Raises:
            ValueError: lists of different lengths, or no references for a judge that compares.
        """
        if len(prompts) != len(answers):
            raise ValueError(
                f"{name_of(type(self))}: {len(prompts)} prompts need as many answers, found {len(answers)}"
            )
        if not self.compares:
            return
        if references is None:
            raise ValueError(f"{name_of(type(self))} compares with references, found none; give one for each answer")
        if len(references) != len(answers):
            raise ValueError(
                f"{name_of(type(self))}: {len(answers)} answers need as many references, found {len(references)}"
            )
