"""Audits of files of preference pairs, in the forms that TRL reads."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from polopt import catalogue
from polopt.config import ConfigError
from polopt.metrics import Measured
from polopt.metrics.preference_audit import PreferenceAudit, PreferenceRow, audit_preferences
from polopt.metrics.ranking import LOGPS, pair_row, ranked_pairs
from polopt.metrics.row_format import MetricDataError
from polopt.worlds import PairReader
from polopt.worlds.protocol import Task
from polopt.worlds.rows import MalformedRow, read_rows, value_of


@dataclasses.dataclass(frozen=True)
class FileAudit:
    """The audit of a file.

    found: of its well-formed rows. malformed: line -> what is wrong with it. ranking: the metric `ranking-accuracy` of
    the pairs, where the file has log-probabilities.
    """

    found: PreferenceAudit
    malformed: dict[int, str]
    ranking: Measured | None

    def record(self) -> dict[str, Any]:
        """Returns plain data."""
        ranking = None if self.ranking is None else dict(self.ranking.values)
        return {**self.found.record(), "malformed": self.malformed, "ranking": ranking}


def audit_file(
    path: Path,
    heldout: Path | None = None,
    *,
    position: str | None = None,
    beta: float = 0.1,
    target_loss: float | None = None,
) -> FileAudit:
    """Audits a file of preference pairs: JSON lines, a JSON array, CSV or Parquet, with the fields prompt, chosen and
    rejected, as texts or conversations.

    heldout: a file of the pairs of the evaluation, whose prompts must not be among these.
    position: the field that is true, or 1, where the preferred answer was shown first.
    beta, target_loss: of the objective, for the pairs that it can turn, where the rows have TRL's columns
        `ref_chosen_logps` and `ref_rejected_logps`.

    Raises:
        ConfigError: a file that cannot be read, with the lines, or of which no row is well-formed.
    """
    rows, malformed = _read(path)
    if not rows:
        line, problem = next(iter(malformed.items()))
        raise ConfigError(f"{path}: no row is a preference pair; line {line}: {problem}")
    pairs = []
    for line, (task, row) in rows.items():
        chosen, rejected = (answer.text for answer in task.rated)
        pairs.append(PreferenceRow(line, _prompt(task), chosen, rejected, _first(row, position, line, path)))
    others = () if heldout is None else [_prompt(task) for task, _ in _read(heldout)[0].values()]
    ranking = _ranking({line: row for line, (_, row) in rows.items()}, path, beta, target_loss)
    return FileAudit(audit_preferences(pairs, others), malformed, ranking)


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


def _ranking(rows: dict[int, dict[str, Any]], path: Path, beta: float, target_loss: float | None) -> Measured | None:
    """Returns the rankings of the pairs, if all rows have the reference's log-probabilities."""
    if not all(row.get(name) not in (None, "") for row in rows.values() for name in LOGPS[2:]):
        return None
    try:
        pairs = ranked_pairs([(line, pair_row(row)) for line, row in rows.items()])
    except MetricDataError as error:
        raise ConfigError(f"{path}: {error}") from None
    settings: dict[str, Any] = {"beta": beta, "target_loss": target_loss}
    found: Measured = catalogue.metric("ranking-accuracy", **settings)(pairs)
    return found
