"""Answers and their revisions: how often a right one is kept and a wrong one is fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polopt.metrics.resampling import unit_means
from polopt.metrics.row_format import (
    MetricDataError,
    RowFormat,
    column_names,
    flag_in,
    name_in,
    number_in,
    probabilities_in,
)

Numbers = NDArray[np.float64]
COLUMNS = ("question", "first_correct", "revised_correct", "first", "revised", "answer")


class Revision(NamedTuple):
    """The decomposition of self-correction, scalars or arrays of one shape.

    first, second: accuracies. confidence: share of the right answers that stay right, CL. critique: share of the wrong
    ones that become right, CS. Either is NaN where there is no such answer.
    """

    first: Any
    second: Any
    confidence: Any
    critique: Any


def decompose(right: ArrayLike, kept: ArrayLike, fixed: ArrayLike) -> Revision:
    """Computes CL = kept / right and CS = fixed / (1 - right), so that Acc2 = kept + fixed = Acc1 CL + (1 - Acc1) CS.

    right, kept, fixed: probabilities that the first answer is right; that it is and the revised one too; that it is not
    and the revised one is.
    """
    a, k, f = (np.asarray(x, float) for x in (right, kept, fixed))
    with np.errstate(divide="ignore", invalid="ignore"):
        return Revision(a, k + f, np.where(a > 0, k / a, np.nan), np.where(a < 1, f / (1 - a), np.nan))


@dataclasses.dataclass(frozen=True, eq=False)
class RevisedAnswers:
    """N answers and their revisions; arrays or lists, [N] each.

    question: names; rows of one question are samples of it. right: probability that the first answer is right, 0
    or 1 of a sampled one. kept: that both are. fixed: that the revised one alone is.

    Raises:
        MetricDataError: arrays of different lengths or without rows, or probabilities out of place.
    """

    question: Any
    right: Any
    kept: Any
    fixed: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", np.asarray(self.question, str))
        for name in ("right", "kept", "fixed"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        shapes = {f.name: getattr(self, f.name).shape for f in dataclasses.fields(self)}
        n = self.question.size
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"RevisedAnswers: every column must be [N] with N >= 1, found {shapes}")
        small = 1e-9
        fine = (self.kept >= -small) & (self.kept <= self.right + small) & (self.right <= 1 + small)
        fine &= (self.fixed >= -small) & (self.fixed <= 1 - self.right + small)
        if not fine.all():
            raise MetricDataError(
                f"RevisedAnswers: need 0 <= kept <= right <= 1 and 0 <= fixed <= 1 - right, row "
                f"{int((~fine).argmax())} has others"
            )

    def __len__(self) -> int:
        return len(self.question)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> RevisedAnswers:
        return RevisedAnswers(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    @classmethod
    def of_samples(cls, question: ArrayLike, first_correct: ArrayLike, revised_correct: ArrayLike) -> RevisedAnswers:
        """Takes sampled answers: whether each first answer, and its revision, is right, [N]."""
        a, b = np.asarray(first_correct, float), np.asarray(revised_correct, float)
        if a.shape != b.shape or not np.isin(a, (0, 1)).all() or not np.isin(b, (0, 1)).all():
            raise MetricDataError(
                "RevisedAnswers: first_correct and revised_correct must be 0 or 1 and of one length, found "
                f"{a.shape} and {b.shape}"
            )
        return cls(question, a, a * b, (1 - a) * b)

    @classmethod
    def of_choices(
        cls, first: ArrayLike, revised: ArrayLike, answer: ArrayLike, question: ArrayLike | None = None
    ) -> RevisedAnswers:
        """Takes probabilities of C choices, for which all is exact.

        first: [N, C] of the first answer. revised: [N, C, C], of the second one (last) after each first one. answer:
        [N] the place of the right choice.

        Raises:
            MetricDataError: shapes that do not fit, no distributions, or no such choice.
        """
        p, q, y = np.asarray(first, float), np.asarray(revised, float), np.asarray(answer, int)
        if p.ndim != 2 or q.shape != (*p.shape, p.shape[1]) or y.shape != p.shape[:1]:
            raise MetricDataError(
                f"RevisedAnswers: first must be [N, C], revised [N, C, C] and answer [N], found {p.shape}, "
                f"{q.shape} and {y.shape}"
            )
        if (y < 0).any() or (y >= p.shape[1]).any():
            raise MetricDataError(f"RevisedAnswers: answer must be a place from 0 to {p.shape[1] - 1}")
        if min(p.min(), q.min()) < 0 or max(np.abs(p.sum(-1) - 1).max(), np.abs(q.sum(-1) - 1).max()) > 1e-6:
            raise MetricDataError("RevisedAnswers: probabilities must be at least 0 and sum to 1")
        row = np.arange(len(p))
        right, onto = p[row, y], (p * q[row, :, y])
        kept = onto[row, y]
        names = row if question is None else question
        return cls(names, right, np.minimum(kept, right), np.clip(onto.sum(1) - kept, 0, 1 - right))

    def by_question(self) -> tuple[NDArray[np.str_], Numbers]:
        """Returns the questions, [P], and the means of right, kept and fixed over each one's rows, [P, 3]."""
        return unit_means(self.question, np.stack([self.right, self.kept, self.fixed], 1))


def revised_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> tuple[str, float, float, float]:
    """Checks one answer and its revision: sampled ones, or the probabilities of choices.

    Raises:
        MetricDataError: columns of neither kind, or as `flag_in` and `probabilities_in`.
    """
    names = column_names(COLUMNS, columns)
    question = name_in(row, names["question"])
    first = probabilities_in(row, names["first"])
    if first is None:
        a, b = (flag_in(row, names[name]) for name in ("first_correct", "revised_correct"))
        return question, float(a), float(a and b), float(b and not a)
    revised = probabilities_in(row, names["revised"], 2)
    if revised is None or revised.shape != (len(first), len(first)):
        raise MetricDataError(f"{names['revised']} must be {len(first)} lists, one after each first choice")
    answer = number_in(row, names["answer"])
    if answer not in range(len(first)):
        raise MetricDataError(f"{names['answer']} must be a place from 0 to {len(first) - 1}, found {answer}")
    found = RevisedAnswers.of_choices(first[None], revised[None], [int(answer or 0)])
    return question, float(found.right[0]), float(found.kept[0]), float(found.fixed[0])


def revised_answers(rows: Iterable[tuple[int, tuple[str, float, float, float]]]) -> RevisedAnswers:
    """Assembles answers and revisions.

    Raises:
        MetricDataError: there are no rows.
    """
    found = [row for _, row in rows]
    if not found:
        raise MetricDataError("there are no answers; give one and its revision a row")
    question, right, kept, fixed = zip(*found, strict=True)
    return RevisedAnswers(question, right, kept, fixed)


REVISED_ROWS = RowFormat("answers and their revisions", COLUMNS, revised_row, revised_answers)
