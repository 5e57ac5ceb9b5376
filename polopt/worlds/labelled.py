"""Tasks from a user's data file whose answers have labels or scores: one answer a row, or a list of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from polopt.worlds.protocol import Task
from polopt.worlds.rated import RatedReader, answer_of
from polopt.worlds.rows import MalformedRow, shown, value_of


class LabelledReader(RatedReader):
    """Reads rows with one answer and its label, in the form that TRL reads for KTO.

    prompt: name of the field with the prompt, text or a list of messages.
    completion: name of the field with the answer, text or a list of messages that ends with the assistant's.
    label: name of the field with true for a good answer and false for a bad one; or a number, higher for a better one.
    system, kind: as `PairReader`'s.
    """

    def __init__(
        self,
        *,
        prompt: str = "prompt",
        completion: str = "completion",
        label: str = "label",
        system: str | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(prompt=prompt, system=system, kind=kind)
        self.completion, self.label = completion, label

    def parse(self, row: dict[str, Any]) -> Task:
        score = _score(value_of(row, self.label), f"field {self.label!r}")
        answer = answer_of(value_of(row, self.completion), self.completion)
        return self._task(row, [(self.completion, *answer, score)], first=self.completion)


class RankedReader(RatedReader):
    """Reads rows with several answers and their scores.

    prompt: name of the field with the prompt, text or a list of messages.
    completions: name of the field with the list of answers, each as `LabelledReader.completion`.
    scores: name of the field with the list of their numbers, higher for a better answer; two at least differ.
    system, kind: as `PairReader`'s.
    """

    def __init__(
        self,
        *,
        prompt: str = "prompt",
        completions: str = "completions",
        scores: str = "scores",
        system: str | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(prompt=prompt, system=system, kind=kind)
        self.completions, self.scores = completions, scores

    def parse(self, row: dict[str, Any]) -> Task:
        texts, values = _list(row, self.completions), _list(row, self.scores)
        if len(texts) != len(values):
            raise MalformedRow(
                f"field {self.completions!r} has {len(texts)} answers and field {self.scores!r} {len(values)} numbers; "
                "give a number for each"
            )
        names = [f"{self.completions}[{i}]" for i in range(len(texts))]
        scores = [_score(value, f"field {self.scores!r}: number {i}") for i, value in enumerate(values, start=1)]
        answers = [(n, *answer_of(text, n), score) for n, text, score in zip(names, texts, scores, strict=True)]
        if len({text for _, text, _, _ in answers}) < len(answers):
            raise MalformedRow(f"field {self.completions!r} holds the same answer twice; leave one out")
        if len(set(scores)) < 2:
            raise MalformedRow(f"field {self.scores!r} must have two different numbers, found {shown(values)}")
        return self._task(row, answers, first=names[0])


def _list(row: dict[str, Any], field: str) -> Sequence[Any]:
    value = value_of(row, field)
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) < 2:
        raise MalformedRow(f"field {field!r} must be a list of two or more, found {shown(value)}")
    return value


def _score(value: Any, where: str) -> float:
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    raise MalformedRow(f"{where} must be true, false or a finite number, found {shown(value)}")
