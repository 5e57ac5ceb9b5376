"""A user's own tasks: a file with one JSON object per line, `{"prompt": ..., "answer": ...}`."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.part import nearest
from polopt.worlds.answers import TaskList
from polopt.worlds.protocol import Task, TaskSplit
from polopt.worlds.verifiers import Weighted, make_verifier

SHOWN = 10


class Jsonl:
    """How to read rows and judge answers to them.

    verifier: as for `make_verifier`.
    prompt, answer: names of the fields; both must be non-empty text. Other fields are the verifier's to use.
    kind: name of the field with the kind of task, which must be text too; by default all rows are of one
        kind, the file's name.

    A verifier finds the row's fields as they are, with the prompt and the answer also under those two names.
    `Step.info` holds each verifier's value in `components`, and `solved`.
    """

    def __init__(
        self, verifier: Any, *, prompt: str = "prompt", answer: str = "answer", kind: str | None = None
    ) -> None:
        self.verifier: Weighted = make_verifier(verifier)
        self.prompt, self.answer, self.kind = prompt, answer, kind

    def read(self, path: str | Path) -> TaskList:
        """Every row of a file as a task.

        Raises:
            ConfigError: no such file, no rows, or malformed ones: the first ten with their line numbers.
        """
        return TaskList(self._tasks(Path(path)), self.score, score_many=self.score_many)

    def split(self, path: str | Path, *, heldout: float | str | Path, seed: int = 0) -> TaskSplit:
        """Two sets of tasks without a prompt in common.

        heldout: another file, or a fraction in (0, 1) of this one's prompts, picked by `seed` and the
            prompt's text. Rows with the same prompt stay together; rows whose prompt is in the held-out file
            are left out of training, with a warning.

        Raises:
            ConfigError: as `read`, or one side would be empty.
        """
        tasks = self._tasks(Path(path))
        if isinstance(heldout, (str, Path)):
            kept = self._tasks(Path(heldout))
            prompts = {task.prompt for task in kept}
        else:
            prompts = _fraction(tasks, heldout, seed, where=str(path))
            kept = [task for task in tasks if task.prompt in prompts]
        rest = [task for task in tasks if task.prompt not in prompts]
        if not rest:
            raise ConfigError(f"{path}: every prompt is also held out in {heldout}, nothing is left to learn from")
        if isinstance(heldout, (str, Path)) and len(rest) < len(tasks):
            warnings.warn(
                f"{path}: left {len(tasks) - len(rest)} of {len(tasks)} rows out of training, "
                f"because their prompt is held out in {heldout}",
                stacklevel=2,
            )
        train, kept_out = (TaskList(tasks, self.score, score_many=self.score_many) for tasks in (rest, kept))
        return TaskSplit(train, kept_out)

    def score(self, completion: str, task: Task) -> tuple[float, dict[str, Any]]:
        return self.verifier.judge(completion, task.row)

    def score_many(self, answered: Sequence[tuple[str, Task]]) -> list[tuple[float, dict[str, Any]]]:
        """`score` of each completion, judged together."""
        return self.verifier.judge_many([(completion, task.row) for completion, task in answered])

    def _tasks(self, path: Path) -> list[Task]:
        return [self._task(row, path.stem, line) for line, row in read_rows(path, self._problem)]

    def _problem(self, row: dict[str, Any]) -> str | None:
        fields = (self.prompt, self.answer, *([self.kind] if self.kind else []))
        return lacking(row, fields) or self.verifier.check(self._row(row))

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "prompt": row[self.prompt], "answer": row[self.answer]}

    def _task(self, row: dict[str, Any], name: str, line: int) -> Task:
        kind = row[self.kind] if self.kind else name
        return Task(f"{name}:{line}", kind, row[self.prompt], row[self.answer], self._row(row))


def read_rows(path: Path, problem: Callable[[dict[str, Any]], str | None]) -> list[tuple[int, dict[str, Any]]]:
    """The objects of a file with their line numbers. problem: what is wrong with one, None if it is right.

    Raises:
        ConfigError: no such file, no rows, or malformed ones: the first ten with their line numbers.
    """
    if not path.is_file():
        raise ConfigError(f"{path} does not exist; give a file with one JSON object per line")
    rows: list[tuple[int, dict[str, Any]]] = []
    problems: list[str] = []
    for line, raw in enumerate(path.read_bytes().splitlines(), start=1):
        if not raw.strip():
            continue
        row = _object(raw)
        found = row if isinstance(row, str) else problem(row)
        if found is not None:
            problems.append(f"line {line}: {found}")
        elif isinstance(row, dict):
            rows.append((line, row))
    _refuse(problems, len(rows), path)
    return rows


def lacking(row: dict[str, Any], fields: Sequence[str]) -> str | None:
    """Which of the fields is missing, or no text; None if all are there."""
    for field in fields:
        if field not in row:
            return f"field {field!r} is missing{nearest(field, row)}"
        if not isinstance(row[field], str) or not row[field].strip():
            return f"field {field!r} must be non-empty text, found {json.dumps(row[field])[:60]}"
    return None


def _object(raw: bytes) -> dict[str, Any] | str:
    """The row, or what is wrong with it."""
    try:
        row = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except RecursionError:
        return "nested too deeply"
    return row if isinstance(row, dict) else f"expected an object with fields, found {json.dumps(row)[:60]}"


def _refuse(problems: Sequence[str], good: int, path: Path) -> None:
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise ConfigError(
            f"{path}: {len(problems)} of {len(problems) + good} rows are malformed: {'; '.join(problems[:SHOWN])}{more}"
        )
    if not good:
        raise ConfigError(f"{path} has no rows; give one JSON object per line")


def _fraction(tasks: Sequence[Task], fraction: float, seed: int, where: str) -> set[str]:
    """Prompts to hold out: those whose hash with the seed comes first, whatever their order in the file."""
    prompts = sorted(
        {task.prompt for task in tasks}, key=lambda text: hashlib.sha256(f"{seed}/{text}".encode()).digest()
    )
    if not 0 < fraction < 1:
        raise ConfigError(f"heldout = {fraction}: expected a fraction between 0 and 1, or the path of a second file")
    if len(prompts) < 2:
        raise ConfigError(f"{where} has one prompt only; two are needed to hold one out")
    return set(prompts[: min(max(1, round(fraction * len(prompts))), len(prompts) - 1)])
