"""Audits of files of preference pairs, in the forms that TRL reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polopt import catalogue
from polopt.config import ConfigError
from polopt.metrics import (
    AnnotatorAgreement,
    Measured,
    MetricDataError,
    PreferenceLabels,
    PrinciplePreferences,
    annotator_agreement,
    preference_labels,
)
from polopt.metrics.agreement import pair_places
from polopt.metrics.discretion import comparison_row
from polopt.metrics.preference_audit import PreferenceAudit, PreferenceRow, audit_preferences
from polopt.metrics.ranking import LOGPS
from polopt.training.flips import FlipCriterion, Flips, columns_of, flip_criterion, flips_of, logps_under
from polopt.worlds import PairReader
from polopt.worlds.protocol import Task
from polopt.worlds.rows import MalformedRow, places, read_rows, text_of, value_of

# The annotator of rows that name none, where only principles are measured.
LABELS = "the labels"


@dataclasses.dataclass(frozen=True)
class FileAudit:
    """The audit of a file.

    found: of its well-formed rows. malformed: line -> what is wrong with it. flips: the pairs that the objective can
    turn, where the reference's log-probabilities are known. agreement: of the annotators, where rows name them.
    discretion: the metric `alignment-discretion` of the annotators, where rows have preferences by principles.
    rows: the well-formed rows.
    """

    found: PreferenceAudit
    malformed: dict[int, str]
    flips: Flips | None
    agreement: AnnotatorAgreement | None
    discretion: Measured | None
    rows: tuple[PreferenceRow, ...] = dataclasses.field(repr=False)
    more_cautions: tuple[str, ...] = ()

    @property
    def ranking(self) -> Measured | None:
        """Returns the metric `ranking-accuracy` of the pairs under the reference."""
        return None if self.flips is None else self.flips.measured

    @property
    def cautions(self) -> tuple[str, ...]:
        """Returns sentences on what the findings mean for training."""
        more = [
            *(() if self.flips is None else self.flips.cautions()),
            *(() if self.agreement is None else self.agreement.cautions()),
            *(() if self.discretion is None else self.discretion.cautions),
        ]
        return (*self.found.cautions, *more, *self.more_cautions)

    def record(self) -> dict[str, Any]:
        """Returns plain data."""
        discretion = None if self.discretion is None else dict(self.discretion.values)
        return {
            **self.found.record(),
            "cautions": list(self.cautions),
            "malformed": self.malformed,
            "ranking": None if self.ranking is None else dict(self.ranking.values),
            "flips": None if self.flips is None else self.flips.record(),
            "agreement": None if self.agreement is None else self.agreement.record(),
            "discretion": discretion,
        }


def audit_file(
    path: Path,
    heldout: Path | None = None,
    *,
    position: str | None = None,
    annotator: str | None = None,
    objective: str = "dpo",
    settings: Mapping[str, Any] | None = None,
    target_loss: float = 0.5,
    model: Path | None = None,
) -> FileAudit:
    """Audits a file of preference pairs: JSON lines, a JSON array, CSV or Parquet, with the fields prompt, chosen and
    rejected, as texts or conversations.

    heldout: a file of the pairs of the evaluation, whose prompts must not be among these.
    position: the field that is true, or 1, where the preferred answer was shown first.
    annotator: the field with the name of the row's annotator. Preferences by principles are the field `principles`, as
        of `alignment-discretion`, with 1 for a principle that prefers `chosen`.
    objective, settings: method and settings of the loss whose pairs are counted.
    target_loss: of a pair, at the end of training.
    model: folder of the reference policy; None takes TRL's columns `ref_chosen_logps` and `ref_rejected_logps`, where
        all rows have them, with `chosen_length` and `rejected_length` for objectives of means.

    Raises:
        ConfigError: a file that cannot be read, with the lines, or of which no row is well-formed; an objective without
            a criterion; a model that cannot be loaded.
        ContextError: a pair does not fit in the model's context.
    """
    criterion = flip_criterion(objective, settings)
    good, malformed = _read(path)
    if not good:
        line, problem = next(iter(malformed.items()))
        raise ConfigError(f"{path}: no row is a preference pair; line {line}: {problem}")
    rows = []
    for line, (task, row) in good.items():
        chosen, rejected = (answer.text for answer in task.rated)
        first = _first(row, position, line, path)
        rows.append(PreferenceRow(line, _prompt(task), chosen, rejected, first, _annotator(row, annotator, line, path)))
    others = () if heldout is None else [_prompt(task) for task, _ in _read(heldout)[0].values()]
    flips, more = _flips(good, path, criterion, target_loss, model)
    return FileAudit(
        audit_preferences(rows, others),
        malformed,
        flips,
        None if annotator is None else annotator_agreement(preference_labels(rows)),
        _discretion(rows, {line: row for line, (_, row) in good.items()}, path),
        tuple(rows),
        tuple(more),
    )


def _read(path: Path) -> tuple[dict[int, tuple[Task, dict[str, Any]]], dict[int, str]]:
    """Returns the well-formed rows by line, and what is wrong with the others."""
    reader = PairReader()

    def parse(row: dict[str, Any]) -> tuple[Task, dict[str, Any]] | str:
        try:
            return reader.parse(row), row
        except MalformedRow as error:
            return str(error)

    found = dict(read_rows(path, parse))
    good = {line: row for line, row in found.items() if not isinstance(row, str)}
    return good, {line: row for line, row in found.items() if isinstance(row, str)}


def _prompt(task: Task) -> str:
    return "\n".join([*(f"{message['role']}: {message['content']}" for message in task.history), task.prompt])


def _first(row: dict[str, Any], position: str | None, line: int, path: Path) -> bool | None:
    if position is None:
        return None
    try:
        value = value_of(row, position)
    except MalformedRow as error:
        raise ConfigError(f"{path}: line {line}: {error}") from None
    text = str(value).strip().lower()
    if text not in ("true", "false", "1", "0"):
        raise ConfigError(f"{path}: line {line}: field {position!r} must be true or false, found {value!r:.60}")
    return text in ("true", "1")


def _annotator(row: dict[str, Any], field: str | None, line: int, path: Path) -> str | None:
    if field is None:
        return None
    try:
        return text_of(row, field)
    except MalformedRow as error:
        raise ConfigError(f"{path}: line {line}: {error}") from None


def _flips(
    good: Mapping[int, tuple[Task, dict[str, Any]]],
    path: Path,
    criterion: FlipCriterion,
    target_loss: float,
    model: Path | None,
) -> tuple[Flips | None, list[str]]:
    """Returns the pairs that the objective turns, if the reference's log-probabilities are known, and a caution if only
    some rows have them."""
    try:
        if model is not None:
            pairs = logps_under(model, {line: task for line, (task, _) in good.items()}, path)
        else:
            found = columns_of({line: row for line, (_, row) in good.items()})
            if found is None:
                return None, _incomplete(good, path)
            pairs = found
        return flips_of(criterion, pairs, [*good], target_loss, None if model is None else str(model)), []
    except MetricDataError as error:
        raise ConfigError(f"{path}: {error}") from None


def _incomplete(good: Mapping[int, tuple[Task, dict[str, Any]]], path: Path) -> list[str]:
    without = {line for line, (_, row) in good.items() if any(row.get(name) in (None, "") for name in LOGPS[2:])}
    if len(without) == len(good):
        return []
    names = " and ".join(LOGPS[2:])
    return [f"{places(without, path)} lack {names}, so no pair is counted by them; --model FOLDER computes them all"]


def _discretion(rows: Sequence[PreferenceRow], data: Mapping[int, Mapping[str, Any]], path: Path) -> Measured | None:
    """Measures the annotators against the principles of the rows, if there are any: one comparison for each pair of
    answers."""
    votes: dict[int, dict[str, float]] = {}
    for line, row in data.items():
        if isinstance(row.get("principles"), Mapping) or any(name.startswith("principles.") for name in row):
            try:
                votes[line] = comparison_row({**row, "annotators": {LABELS: 1}})["principles"]
            except MetricDataError as error:
                raise ConfigError(f"{path}: line {line}: {error}") from None
    if not votes:
        return None
    labels = preference_labels([dataclasses.replace(row, annotator=row.annotator or LABELS) for row in rows])
    found: Measured = catalogue.metric("alignment-discretion")(_comparisons(rows, votes, labels, path))
    return found


def _comparisons(
    rows: Sequence[PreferenceRow], votes: Mapping[int, Mapping[str, float]], labels: PreferenceLabels, path: Path
) -> PrinciplePreferences:
    """Returns the pairs with their preferences by principles, which all rows of a pair must share.

    Raises:
        ConfigError: two rows of a pair whose principles differ, with their lines.
    """
    names = tuple(dict.fromkeys(name for row in votes.values() for name in row))
    number, sign = pair_places(rows)
    table = np.full((len(labels.labels), len(names)), np.nan)
    first: dict[tuple[int, int], int] = {}
    for row, i, side in zip(rows, number.tolist(), sign.tolist(), strict=True):
        for name, value in votes.get(row.place, {}).items():
            j, vote = names.index(name), side * value
            if np.isnan(vote) or vote == 0:
                continue
            place = first.setdefault((i, j), row.place)
            if place != row.place and table[i, j] != vote:
                raise ConfigError(
                    f"{path}: lines {place} and {row.place}: principles.{name} prefers one answer in one and the other "
                    "in the other, of the same pair; 1 is for `chosen`, -1 for `rejected`, of the row itself"
                )
            table[i, j] = vote
    return PrinciplePreferences(table, labels.labels, names, labels.names)
