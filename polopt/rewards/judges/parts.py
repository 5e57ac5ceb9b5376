"""What a judge is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from polopt.part import Part
from polopt.part_names import name_of


class Judgement(NamedTuple):
    """scores: [B]. details: of each row, whatever else the judge knows of it, for a person to read."""

    scores: Tensor
    details: list[dict[str, Any]]


class Judge(Part):
    """`judge(prompts, answers, references=None) -> Judgement`: what texts are worth, one number each, higher is better.

    Whoever judges a row sees that row alone: no score depends on which rows stand beside it.

    compares: whether it reads a reference, an answer that is known to be good.
    """

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
        """Refuse texts that do not belong together.

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
