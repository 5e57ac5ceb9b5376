"""Metrics that are induced from written feedback: grounding, clustering, judging and matching, by words."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, name_in
from polopt.part import Part

COLUMNS = ("trajectory", "record", "feedback")
STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "in",
        "is",
        "it",
        "its",
        "of",
        "on",
        "or",
        "so",
        "that",
        "the",
        "their",
        "then",
        "there",
        "they",
        "this",
        "to",
        "was",
        "well",
        "were",
        "when",
        "which",
        "with",
        "you",
        "your",
        "agent",
    ]
)
NEGATIVE = frozenset(
    [
        "bad",
        "badly",
        "fails",
        "failed",
        "fault",
        "forgot",
        "mistake",
        "never",
        "no",
        "not",
        "poor",
        "poorly",
        "should",
        "wrong",
        "wrongly",
    ]
)
POSITIVE = frozenset(["good", "great", "nice", "nicely", "right", "rightly"])


@dataclasses.dataclass(frozen=True, eq=False)
class WrittenFeedback:
    """N pieces of feedback; lists of text, [N] each.

    trajectory: names. record: what the agent did, in words. feedback: what a person wrote of it.

    Raises:
        MetricDataError: lists of different lengths, without rows, or with an empty text.
    """

    trajectory: Any
    record: Any
    feedback: Any

    def __post_init__(self) -> None:
        for name in COLUMNS:
            object.__setattr__(self, name, np.asarray(getattr(self, name), str))
        shapes = {name: getattr(self, name).shape for name in COLUMNS}
        n = self.trajectory.size
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"WrittenFeedback: every column must be [N] with N >= 1, found {shapes}")
        for name in COLUMNS:
            if (empty := np.char.strip(getattr(self, name)) == "").any():
                raise MetricDataError(f"WrittenFeedback: {name} of row {int(empty.argmax())} is empty")

    def __len__(self) -> int:
        return len(self.trajectory)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> WrittenFeedback:
        return WrittenFeedback(*(getattr(self, name)[rows] for name in COLUMNS))

    def in_order(self) -> WrittenFeedback:
        """Returns the rows by trajectory and text."""
        return self[np.lexsort([self.feedback, self.record, self.trajectory])]


@dataclasses.dataclass(frozen=True)
class Aspect:
    """One remark. text: the behaviour, in words. good: whether it is praised. trajectory: the one that it is on."""

    text: str
    good: bool
    trajectory: str


@dataclasses.dataclass(frozen=True)
class InducedMetric:
    """A metric. name: of one or two words. good, bad: remarks that praise and blame the behaviour."""

    name: str
    good: tuple[str, ...]
    bad: tuple[str, ...]

    @property
    def definition(self) -> str:
        """Returns the metric in words, with an example of each side, for a judge that reads texts."""
        sides = [f"{side}: {texts[0]}" for side, texts in (("good", self.good), ("bad", self.bad)) if texts]
        return f"{self.name} ({'; '.join(sides)})"


def content_words(text: str) -> frozenset[str]:
    """Returns the words of a text in lower case, without those that are in every text or praise and blame."""
    return frozenset(re.findall(r"[a-z0-9']+", text.lower())) - STOP - NEGATIVE - POSITIVE


class Grounding(Part):
    """Base: `grounding(feedback, record, trajectory) -> aspects`."""

    def forward(self, feedback: str, record: str, trajectory: str) -> list[Aspect]:
        raise NotImplementedError


class Clustering(Part):
    """Base: `clustering(aspects) -> metrics`."""

    def forward(self, aspects: Sequence[Aspect]) -> list[InducedMetric]:
        raise NotImplementedError


class TraitJudge(Part):
    """Base: `judge(record, metric) -> 1, -1, or 0` where the behaviour does not occur."""

    def forward(self, record: str, metric: InducedMetric) -> int:
        raise NotImplementedError


class AspectMatching(Part):
    """Base: `matching(aspect, metrics) -> place` of the metric that an aspect is about, None if it is about none."""

    def forward(self, aspect: Aspect, metrics: Sequence[InducedMetric]) -> int | None:
        raise NotImplementedError


class SentenceGrounding(Grounding):
    """Takes each sentence or clause for one remark, which blames if it holds a word of blame."""

    def forward(self, feedback: str, record: str, trajectory: str) -> list[Aspect]:
        parts = [part.strip() for part in re.split(r"[.;!?\n]+|, but ", feedback)]
        words = [(part, frozenset(re.findall(r"[a-z']+", part.lower()))) for part in parts if content_words(part)]
        return [Aspect(part, not (found & NEGATIVE), trajectory) for part, found in words]


class WordClustering(Clustering):
    """Puts remarks together that share their topic: the most frequent word that no other cluster has taken.

    Words are taken in turn by how many remarks of both signs hold them, then by how many hold them at all; a word of
    fewer than `least` remarks makes no cluster.
    """

    least: int = 2

    def setup(self) -> None:
        if self.least < 1:
            raise ValueError(f"metrics.WordClustering: least must be 1 or more, found {self.least}")

    def forward(self, aspects: Sequence[Aspect]) -> list[InducedMetric]:
        left, found = list(aspects), []
        while left:
            held: dict[str, list[int]] = {}
            for aspect in left:
                for word in content_words(aspect.text):
                    held.setdefault(word, [0, 0])[aspect.good] += 1
            score = {word: (min(sides), sum(sides)) for word, sides in held.items()}
            word = min(score, key=lambda w: (-score[w][0], -score[w][1], w))
            if score[word][1] < self.least:
                break
            own = [aspect for aspect in left if word in content_words(aspect.text)]
            sides = [tuple(sorted({a.text for a in own if a.good is good})) for good in (True, False)]
            found.append(InducedMetric(word, sides[0], sides[1]))
            left = [aspect for aspect in left if word not in content_words(aspect.text)]
        return found


class WordJudge(TraitJudge):
    """Compares the clause of a record that holds the metric's name with the words of its good and its bad remarks."""

    def forward(self, record: str, metric: InducedMetric) -> int:
        good, bad = (frozenset().union(*map(content_words, texts)) for texts in (metric.good, metric.bad))
        total = 0
        for clause in re.split(r"[.;!?\n]+", record):
            words = content_words(clause)
            if metric.name in words:
                total += len(words & (good - bad)) - len(words & (bad - good))
        return int(np.sign(total))


class WordMatching(AspectMatching):
    """Matches the first metric whose name is a word of the aspect."""

    def forward(self, aspect: Aspect, metrics: Sequence[InducedMetric]) -> int | None:
        words = content_words(aspect.text)
        return next((i for i, metric in enumerate(metrics) if metric.name in words), None)


def feedback_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> tuple[str, str, str]:
    """Checks one piece of feedback.

    Raises:
        MetricDataError: a column that is missing or empty.
    """
    names = column_names(COLUMNS, columns)
    trajectory, record, feedback = (name_in(row, names[name]) for name in COLUMNS)
    return trajectory, record, feedback


def written_feedback(rows: Iterable[tuple[int, tuple[str, str, str]]]) -> WrittenFeedback:
    """Assembles feedback.

    Raises:
        MetricDataError: there are no rows.
    """
    found = [row for _, row in rows]
    if not found:
        raise MetricDataError("there is no feedback; give each piece a row")
    return WrittenFeedback(*zip(*found, strict=True))


FEEDBACK_ROWS = RowFormat("written feedback", COLUMNS, feedback_row, written_feedback)
