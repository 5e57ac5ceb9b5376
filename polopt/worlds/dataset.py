"""Tasks from a user's data file: rows with a prompt, an answer, and further fields for the verifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.worlds.answers import TaskList
from polopt.worlds.messages import conversation
from polopt.worlds.protocol import Task
from polopt.worlds.rows import MalformedRow, has, places, read_rows, text_of, value_of
from polopt.worlds.task_files import TaskFileReader, huge, prompt_key, warn_reader
from polopt.worlds.verifiers import Weighted, make_verifier

# The most prompts that a warning names.
NAMED = 3


class DatasetReader(TaskFileReader):
    """Reads rows of a data file as tasks whose answers a verifier scores.

    verifier: as for `make_verifier`.
    prompt, answer: names of the fields; `a.b` is field b inside field a. A prompt is text, or a list of messages (field
        `messages` is then accepted as well); an answer is text, a number or a truth value, and is read as JSON writes
        it. The answer may be missing in all rows if every verifier is a function or a regular expression.
    solution: name of a field with the answer and its working, which demonstrations use; if None, field `solution` of
        the rows that have one. In all other rows the answer is the solution.
    answer_after: the answer is the text after the last occurrence of this marker in its field, such as `####`, and the
        whole field is the solution.
    system: a system prompt before every prompt that has none.
    kind: name of the field with the kind of task, which must be text; by default all rows are of one kind, the file's
        name.

    A verifier receives the row's fields unchanged, with the answer also as `answer` (text) and the prompt as `prompt`:
    text, or, where the row has messages, all of them. `Step.info` holds each verifier's value in `components`, and
    `solved`.
    """

    def __init__(
        self,
        verifier: Any,
        *,
        prompt: str = "prompt",
        answer: str = "answer",
        solution: str | None = None,
        answer_after: str | None = None,
        system: str | None = None,
        kind: str | None = None,
    ) -> None:
        self.verifier: Weighted = make_verifier(verifier)
        self.prompt, self.answer, self.solution, self.kind = prompt, answer, solution, kind
        self.answer_after, self.system = answer_after, system

    def score(self, completion: str, task: Task) -> tuple[float, dict[str, Any]]:
        return self.verifier.judge(completion, task.row)

    def score_many(self, answered: Sequence[tuple[str, Task]]) -> list[tuple[float, dict[str, Any]] | None]:
        """Scores each completion as `score` does; None marks a completion whose scoring exceeded its time limit."""
        return self.verifier.judge_many([(completion, task.row) for completion, task in answered])

    def _list(self, tasks: Sequence[Task]) -> TaskList:
        names = self.verifier.names
        together = id(self) if self.verifier.together else None
        return TaskList(tasks, self.score, names if len(names) > 1 else (), self.score_many, together)

    def _tasks(self, path: Path) -> list[Task]:
        rows = read_rows(path, self._parse)
        tasks = [dataclasses.replace(t, id=f"{path.stem}:{n}", kind=t.kind or path.stem) for n, t in rows]
        without = [n for n, task in rows if task.answer is None]
        if without and len(without) < len(rows):
            raise ConfigError(
                f"{path}: {len(without)} of {len(rows)} rows have no field {self.answer!r}, {places(without, path)}; "
                "give every row one, or none"
            )
        odd = self.verifier.warnings_for([task.row for task in tasks])
        for sentence in (*contradictions(rows, path), *huge(rows, path), *odd):
            warn_reader(f"{path}: {sentence}")
        return tasks

    def _parse(self, row: dict[str, Any]) -> Task:
        """Converts a row to a task without an id, and without a kind if the kind is the file's name.

        Raises:
            MalformedRow: a field is missing or of the wrong type, or the verifier cannot score any answer to the row.
        """
        name = "messages" if self.prompt == "prompt" and "prompt" not in row and "messages" in row else self.prompt
        value = value_of(row, name)
        found = conversation(value, name)
        if self.system is not None and not any(message["role"] == "system" for message in found.history):
            found = found._replace(history=({"role": "system", "content": self.system}, *found.history))
        answer, solution = self._answer(row, found.answer)
        verifier_row = {**row, "prompt": value if isinstance(value, str) else found.messages}
        if answer is not None:
            verifier_row["answer"] = answer
        problem = self.verifier.check(verifier_row)
        if problem is not None:
            raise MalformedRow(problem)
        kind = text_of(row, self.kind) if self.kind is not None else ""
        return Task("", kind, found.prompt, solution, verifier_row, found.history, answer)

    def _answer(self, row: dict[str, Any], message_answer: str | None) -> tuple[str | None, str | None]:
        """Returns the answer and the solution of a row.

        message_answer: the assistant's answer in the row's messages, None if they have none.
        """
        answer = solution = message_answer
        if has(row, self.answer) or self.answer != "answer" or (message_answer is None and self.verifier.reads_answer):
            answer = text_of(row, self.answer)
            solution = message_answer or answer
        if self.answer_after is not None and answer is not None:
            _, mark, after = answer.rpartition(self.answer_after)
            if not mark or not after.strip():
                raise MalformedRow(f"field {self.answer!r} has nothing after {self.answer_after!r}, the answer_after")
            answer, solution = after.strip(), answer
        if self.solution is not None or row.get("solution") not in (None, ""):
            solution = text_of(row, self.solution or "solution")
        return answer, solution


def contradictions(rows: Sequence[tuple[int, Task]], path: Path) -> Iterator[str]:
    """Yields a sentence if some prompts have more than one answer, with the first such prompts and their lines."""
    answers: dict[str, dict[str, int]] = {}
    for number, task in rows:
        if task.answer is not None:
            answers.setdefault(prompt_key(task), {}).setdefault(task.answer.strip(), number)
    several = {prompt: found for prompt, found in answers.items() if len(found) > 1}
    if several:
        some = []
        for prompt, found in list(several.items())[:NAMED]:
            answered = [f"{answer!r:.30} ({places([n], path)})" for answer, n in found.items()]
            some.append(f"{prompt!r:.60} has {' and '.join(answered)}")
        more = f"; and {len(several) - NAMED} more" if len(several) > NAMED else ""
        yield (
            f"{len(several)} prompt{'s' * (len(several) > 1)} with different answers in different rows: "
            f"{'; '.join(some)}{more}"
        )
