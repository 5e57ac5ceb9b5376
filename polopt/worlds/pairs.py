"""Preference tasks from a user's data file: rows with a prompt, a chosen answer and a rejected answer."""

from __future__ import annotations

from typing import Any

from polopt.worlds.protocol import Task
from polopt.worlds.rated import RatedReader, answer_of
from polopt.worlds.rows import MalformedRow, value_of


class PairReader(RatedReader):
    """Reads rows of preferences, in the forms that TRL reads.

    prompt: name of the field with the prompt, text or a list of messages. A row without the field must have chosen and
        rejected answers that are whole conversations, whose messages before the answer are the prompt.
    chosen, rejected: names of the fields with the preferred answer and the other one. Each is text, or a list of
        messages that ends with the answer of the assistant; messages before the answer must equal the prompt's. `a.b`
        is field b inside field a.
    system: a system prompt before every prompt that has none.
    kind: name of the field with the kind of task, which must be text; by default all rows are of one kind, the file's
        name.

    The chosen answer has score 1 and is the task's solution, the rejected one has score 0.
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
        super().__init__(prompt=prompt, system=system, kind=kind)
        self.chosen, self.rejected = chosen, rejected

    def parse(self, row: dict[str, Any]) -> Task:
        scores = {self.chosen: 1.0, self.rejected: 0.0}
        answers = [(name, *answer_of(value_of(row, name), name), score) for name, score in scores.items()]
        if answers[0][1] == answers[1][1]:
            raise MalformedRow(f"fields {self.chosen!r} and {self.rejected!r} hold the same answer; leave the row out")
        return self._task(row, answers, first=self.chosen)
