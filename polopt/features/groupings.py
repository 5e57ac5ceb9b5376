"""Groupings of the rows that are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.situation import Situation


class SamePrompt(Grouping):
    """Groups the rows of one prompt or start state: the batch's `group`."""

    parts_prompts = True

    reads = frozenset({"group"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.group


class SameTask(Grouping):
    """Groups the rows of one task, whatever their start: `extras["index"]`, the task's number.

    A task that a prompt augmenter lists several times has several groups by prompt, and one by task.
    """

    reads = frozenset({"extras.index"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.extras["index"]


class WholeBatch(Grouping):
    """Groups all rows of the batch."""

    def forward(self, experience: Experience) -> Tensor:
        return torch.zeros(len(experience), dtype=torch.long, device=experience.device)


class SameKind(Grouping):
    """Groups the rows of one kind of task: `extras["kind"]`, one label for each row."""

    reads = frozenset({"extras.kind"})

    def forward(self, experience: Experience) -> Tensor:
        return torch.tensor(ops.numbered(experience.extras["kind"]), dtype=torch.long, device=experience.device)


class Strata(Grouping):
    """Groups the rows of one prompt that also agree in a measure."""

    by: RowFeature
    within: Grouping = SamePrompt()

    @property
    def parts_prompts(self) -> bool:  # type: ignore[override]
        return self.within.parts_prompts

    def forward(self, experience: Experience) -> Tensor:
        return ops.crossed(self.within(experience), self.by(experience))


class SameMeaning(Grouping):
    """Groups rows of tasks with one meaning: equal values of `Task.row[field]`. A task without the field is its own
    group.

    `sampling.ConsecutiveTasks` puts such tasks into one batch if they follow each other in the data.
    """

    field: str = "meaning"

    reads = frozenset({"extras.task", "extras.index"})

    def forward(self, experience: Experience) -> Tensor:
        numbers = experience.extras["index"].tolist()
        meanings = [
            ("one", str(task.row[self.field])) if self.field in task.row else ("alone", number)
            for task, number in zip(experience.extras["task"], numbers, strict=True)
        ]
        return torch.tensor(ops.numbered(meanings), dtype=torch.long, device=experience.device)


def single_row_groups(within: Grouping, situation: Situation) -> Iterator[str]:
    """Yields a refusal if every group of `within` holds a single row, which no other row can be compared with."""
    if situation.group == 1 and within.parts_prompts:
        yield (
            "its groups hold one row each, which there is nothing to compare with, so that nothing is learned; set "
            f"stages.{situation.stage}.group to 2 or more, found 1"
        )
