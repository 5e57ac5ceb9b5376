"""Tasks whose answers have known qualities, from a user's data file: what the forms of a row have in common."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polopt.worlds.answers import TaskList
from polopt.worlds.messages import Conversation, conversation, message_of
from polopt.worlds.protocol import RatedAnswer, Task
from polopt.worlds.rows import MalformedRow, has, read_rows, shown, text_of, value_of
from polopt.worlds.task_files import TaskFileReader, huge, warn_reader

ANSWER_FORM = "[{role: assistant, content: ...}]"
Messages = list[dict[str, str]]


class RatedTasks(TaskList):
    """Tasks with answers of known quality and no verifier for any other answer."""

    verified = False


class RatedReader(TaskFileReader, abc.ABC):
    """Reads rows with a prompt and answers of known quality; a subclass defines how a row holds these.

    The best answer is the task's solution, which demonstrations use, unless it is the only one and its score is 0 or
    less. The reward is 1 for that answer, word for word, and 0 otherwise, and so does not measure the quality of other
    answers (`are_verified`).
    """

    def __init__(self, *, prompt: str, system: str | None, kind: str | None) -> None:
        self.prompt, self.system, self.kind = prompt, system, kind

    @abc.abstractmethod
    def parse(self, row: dict[str, Any]) -> Task:
        """Converts a row to a task without an id, and without a kind if the kind is the file's name.

        Raises:
            MalformedRow: a field is missing, of the wrong type, or says nothing.
        """

    def score(self, completion: str, task: Task) -> tuple[float, dict[str, Any]]:
        return float(completion == task.solution), {}

    def _list(self, tasks: Sequence[Task]) -> TaskList:
        return RatedTasks(tasks, self.score)

    def _tasks(self, path: Path) -> list[Task]:
        rows = read_rows(path, self.parse)
        for sentence in huge(rows, path):
            warn_reader(f"{path}: {sentence}")
        return [dataclasses.replace(t, id=f"{path.stem}:{n}", kind=t.kind or path.stem) for n, t in rows]

    def _task(self, row: dict[str, Any], answers: Sequence[tuple[str, str, Messages, float]], first: str = "") -> Task:
        """Returns the task of a row.

        answers: of each, the name of its field, its text, the messages before it and its score. first: the field of the
            messages that are the prompt of a row without one.
        """
        begun = [messages for _, _, messages, _ in answers]
        prompt, value = self._prompt(row, begun[0] if all(begun) and first else [], first)
        for name, _, messages, _ in answers:
            if messages and messages != prompt.messages:
                raise MalformedRow(f"the messages before the answer in field {name!r} are not the prompt")
        history = prompt.history
        if self.system is not None and not any(message["role"] == "system" for message in history):
            history = ({"role": "system", "content": self.system}, *history)
        kind = text_of(row, self.kind) if self.kind is not None else ""
        found = sorted((RatedAnswer(text, score) for _, text, _, score in answers), key=lambda a: -a.score)
        solution = found[0].text if len(found) > 1 or found[0].score > 0 else None
        return Task("", kind, prompt.prompt, solution, {**row, "prompt": value}, history, rated=tuple(found))

    def _prompt(self, row: dict[str, Any], before: Messages, first: str) -> tuple[Conversation, Any]:
        """Returns the row's prompt, or, without one, the messages common to its answers; and the value it was read
        from.

        before: the messages before the first answer, if all answers have such messages. first: its field.
        """
        implicit = bool(before) and not has(row, self.prompt)
        value, field = (before, first) if implicit else (value_of(row, self.prompt), self.prompt)
        found = conversation(value, field)
        if found.answer is not None:
            raise MalformedRow(
                f"field {field!r} must end its prompt with a message of the user, found one of the assistant"
            )
        return found, value


def answer_of(value: Any, field: str) -> tuple[str, Messages]:
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
