"""Preference tasks from a user's data file: rows with a prompt, a chosen answer and a rejected answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polopt.worlds.answers import TaskList
from polopt.worlds.messages import Conversation, conversation, message_of
from polopt.worlds.protocol import Task
from polopt.worlds.rows import MalformedRow, has, read_rows, shown, text_of, value_of
from polopt.worlds.task_files import TaskFileReader, huge, warn_reader

ANSWER_FORM = "[{role: assistant, content: ...}]"


class PairList(TaskList):
    """Tasks with a chosen and a rejected answer and no verifier for any other answer."""

    verified = False


class PairReader(TaskFileReader):
    """Reads rows of preferences, in the forms that TRL reads.

    prompt: name of the field with the prompt, text or a list of messages. A row without the field must have chosen and
        rejected answers that are whole conversations, whose messages before the answer are the prompt.
    chosen, rejected: names of the fields with the preferred answer and the other one. Each is text, or a list of
        messages that ends with the answer of the assistant; messages before the answer must equal the prompt's. `a.b`
        is field b inside field a.
    system: a system prompt before every prompt that has none.
    kind: name of the field with the kind of task, which must be text; by default all rows are of one kind, the file's
        name.

    The chosen answer is the task's solution, which demonstrations use. The reward is 1 for the chosen answer, word for
    word, and 0 otherwise, and so does not measure the quality of other answers (`are_verified`).
    """

    def __init__(
        self,
        *,
        prompt: str = "prompt",
        chosen: str = "chosen",
        rejected: str = "rejected",
        system: str | None = None,
        kind: str | None = None,
    ) -> None:
        self.prompt, self.chosen, self.rejected = prompt, chosen, rejected
        self.system, self.kind = system, kind

    def score(self, completion: str, task: Task) -> tuple[float, dict[str, Any]]:
        return float(completion == task.solution), {}

    def _list(self, tasks: Sequence[Task]) -> TaskList:
        return PairList(tasks, self.score)

    def _tasks(self, path: Path) -> list[Task]:
        rows = read_rows(path, self.parse)
        for sentence in huge(rows, path):
            warn_reader(f"{path}: {sentence}")
        return [dataclasses.replace(t, id=f"{path.stem}:{n}", kind=t.kind or path.stem) for n, t in rows]

    def parse(self, row: dict[str, Any]) -> Task:
        """Converts a row to a task without an id, and without a kind if the kind is the file's name.

        Raises:
            MalformedRow: a field is missing or of the wrong type, or the two answers are the same.
        """
        answers = {name: _answer(value_of(row, name), name) for name in (self.chosen, self.rejected)}
        (chosen, before), (rejected, other) = answers.values()
        prompt, value = self._prompt(row, before if other else [])
        for name, (_, begun) in answers.items():
            if begun and begun != prompt.messages:
                raise MalformedRow(f"the messages before the answer in field {name!r} are not the prompt")
        if chosen == rejected:
            raise MalformedRow(f"fields {self.chosen!r} and {self.rejected!r} hold the same answer; leave the row out")
        history = prompt.history
        if self.system is not None and not any(message["role"] == "system" for message in history):
            history = ({"role": "system", "content": self.system}, *history)
        kind = text_of(row, self.kind) if self.kind is not None else ""
        return Task("", kind, prompt.prompt, chosen, {**row, "prompt": value}, history, rejected=rejected)

    def _prompt(self, row: dict[str, Any], before: list[dict[str, str]]) -> tuple[Conversation, Any]:
        """Returns the row's prompt, or, without one, the messages common to both answers; and the value it was read
        from.

        before: the messages before the chosen answer, if both answers have such messages.
        """
        implicit = bool(before) and not has(row, self.prompt)
        value, field = (before, self.chosen) if implicit else (value_of(row, self.prompt), self.prompt)
        found = conversation(value, field)
        if found.answer is not None:
            raise MalformedRow(
                f"field {field!r} must end its prompt with a message of the user, found one of the assistant"
            )
        return found, value


def _answer(value: Any, field: str) -> tuple[str, list[dict[str, str]]]:
    """Returns an answer's text, and the messages before it if the answer ends a conversation.

    Raises:
        MalformedRow: the value is neither text nor messages of text that end with the assistant's.
    """
    if isinstance(value, str) and value.strip():
        return value, []
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise MalformedRow(
            f"field {field!r} must be non-empty text or messages like {ANSWER_FORM}, found {shown(value)}"
        )
    messages = [message_of(message, f"field {field!r}: message {i}") for i, message in enumerate(value, start=1)]
    answer = messages.pop()
    if answer["role"] != "assistant" or not answer["content"].strip():
        raise MalformedRow(f"field {field!r} must end with a non-empty message of the assistant, like {ANSWER_FORM}")
    return answer["content"], messages
