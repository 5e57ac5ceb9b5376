"""Answers that are revised over several rounds, in one mode or in several."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
COLUMNS = ("item", "round", "correct", "answer", "probabilities", "mode", "sample")


@dataclasses.dataclass(frozen=True, eq=False)
class RevisionChains:
    """The n chains of answers of one mode, of up to K + 1 rounds.

    item: [n] names. correct: [n, K + 1] 1 or 0, NaN after a chain's end. same: [n, K + 1] whether the answer is that of
    the round before, NaN where unknown and in round 0. divergence: [n, K + 1] KL of the options' probabilities from
    those of the round before, in nats, NaN where unknown. margin: [n, K + 1] of the likeliest option over the second.
    """

    item: NDArray[np.str_]
    correct: Numbers
    same: Numbers
    divergence: Numbers
    margin: Numbers


@dataclasses.dataclass(frozen=True, eq=False)
class RevisionRounds:
    """N answers; arrays or lists, [N] each.

    item: names. round: 0 is the first answer, then 1, 2, ... correct: True or False. answer: what it is, to compare
    with the round before, None where unknown. probabilities: of the options, [C] each, None where unknown. mode: how
    answers are given, None where there is one way. sample: name of the chain where an item has several, None else.

    Raises:
        MetricDataError: arrays of different lengths or without rows, a round that is missing or there twice, or options
            that change within a chain.
    """

    item: Any
    round: Any
    correct: Any
    answer: Any = None
    probabilities: Any = None
    mode: Any = None
    sample: Any = None

    def __post_init__(self) -> None:
        n = len(self.item)
        for name, kind in {"item": str, "round": int, "correct": float}.items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))
        for name, default in {"answer": None, "probabilities": None, "mode": "answers", "sample": "0"}.items():
            given = getattr(self, name)
            cells = np.empty(n, object)
            values = [default] * n if given is None else [default if x is None else x for x in given]
            if len(values) != n:
                raise MetricDataError(
                    f"RevisionRounds: every column must be [N], found {len(values)} {name} of N = {n}"
                )
            for row, value in enumerate(values):  # a list of equally long lists would become a matrix
                cells[row] = value
            object.__setattr__(self, name, cells)
        shapes = {f.name: getattr(self, f.name).shape for f in dataclasses.fields(self)}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"RevisionRounds: every column must be [N] with N >= 1, found {shapes}")
        if not np.isin(self.correct, (0.0, 1.0)).all():
            raise MetricDataError("RevisionRounds: correct must be True or False")
        for (mode, item, sample), rows in self._chains().items():
            found = np.sort(self.round[rows])
            if not np.array_equal(found, np.arange(len(found))):
                raise MetricDataError(
                    f"item {item!r:.60}, mode {mode!r:.60}, sample {sample!r:.60}: rounds must be 0, 1, 2, ... once "
                    f"each, found {found.tolist()!s:.60}"
                )
            if len({np.shape(self.probabilities[row]) for row in rows if self.probabilities[row] is not None}) > 1:
                raise MetricDataError(
                    f"item {item!r:.60}, mode {mode!r:.60}: its rounds have different numbers of options"
                )

    def __len__(self) -> int:
        return len(self.item)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> RevisionRounds:
        return RevisionRounds(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def _chains(self) -> dict[tuple[str, str, str], list[int]]:
        found: dict[tuple[str, str, str], list[int]] = {}
        for row, key in enumerate(zip(self.mode, self.item.tolist(), self.sample, strict=True)):
            found.setdefault((str(key[0]), key[1], str(key[2])), []).append(row)
        return found

    def modes(self) -> dict[str, RevisionChains]:
        """Returns the chains of each mode, in the order of their names."""
        chains = sorted(self._chains().items())
        length = int(self.round.max()) + 1
        found = {}
        for mode in sorted({key[0] for key, _ in chains}):
            ours = [(key[1], rows) for key, rows in chains if key[0] == mode]
            table = np.full((4, len(ours), length), np.nan)
            for place, (_, rows) in enumerate(ours):
                self._fill(table[:, place], sorted(rows, key=lambda row: self.round[row]))
            found[mode] = RevisionChains(np.array([item for item, _ in ours]), *table)
        return found

    def _fill(self, cells: Numbers, rows: list[int]) -> None:
        """Writes a chain's correctness, sameness, divergence and margin into cells [4, K + 1]."""
        before: int | None = None
        for k, row in enumerate(rows):
            cells[0, k] = self.correct[row]
            p = self.probabilities[row]
            if p is not None:
                top = np.sort(np.append(p, 0.0))[::-1]
                cells[3, k] = top[0] - top[1]
            if before is not None:
                if self.answer[row] is not None and self.answer[before] is not None:
                    cells[1, k] = str(self.answer[row]) == str(self.answer[before])
                if p is not None and self.probabilities[before] is not None:
                    cells[2, k] = _kl(np.asarray(p), np.asarray(self.probabilities[before]))
            before = row


def _kl(p: Numbers, q: Numbers) -> float:
    """Returns sum p log(p / q), with probabilities of q at least 1e-12."""
    at = p > 0
    return float((p[at] * np.log(p[at] / np.maximum(q[at], 1e-12))).sum())


def round_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one answer of a file.

    Raises:
        MetricDataError: a column that is missing, a round that is no whole number from 0 on, a `correct` neither
            true nor false, or probabilities that are none.
    """
    names = column_names(COLUMNS, columns)
    at = number_in(row, names["round"]) or 0.0
    if at != int(at) or at < 0:
        raise MetricDataError(f"{names['round']} must be 0, 1, 2, ..., found {at:g}")
    text = {name: row.get(names[name]) for name in ("answer", "mode", "sample")}
    return {
        "item": name_in(row, names["item"]),
        "round": int(at),
        "correct": float(flag_in(row, names["correct"])),
        "probabilities": probabilities_in(row, names["probabilities"]),
        **{name: None if value in (None, "") else str(value) for name, value in text.items()},
    }


def revision_rounds(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> RevisionRounds:
    """Assembles answers.

    Raises:
        MetricDataError: as `RevisionRounds`.
    """
    found = [row for _, row in rows]
    return RevisionRounds(**{name: [row[name] for row in found] for name in COLUMNS})


ROUND_ROWS = RowFormat("answers by round", COLUMNS, round_row, revision_rounds)
