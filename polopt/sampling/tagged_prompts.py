"""Prompt tags that divide the tasks into parts, each with a text of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.sampling.parts import PromptAugmenter, Select, Start
from polopt.sampling.source_protocols import Source


class TaggedPrompts(PromptAugmenter):
    """Appends to every task's prompt one of `count` texts, that of the task's part of the data.

    Part j holds the tasks of numbers from j n / count to before (j + 1) n / count, of n: an order of the tasks by
    difficulty or subject determines the parts.

    count: number of parts.
    wording: the text, with {number} for j.

    Each text is trained on its own part alone, so that the policy's answers with different texts diverge; to solve a
    task, sample it with all of them. Source: the trainable prefixes of EconProver, arXiv:2509.12603.
    """

    count: int = 8
    wording: str = " #{number}"

    def setup(self) -> None:
        if self.count < 1:
            raise ValueError(f"sampling.TaggedPrompts: count must be >= 1, found {self.count}")
        if "{number}" not in self.wording and self.count > 1:
            raise ValueError(
                f"sampling.TaggedPrompts: the wording must hold {{number}}, or all prefixes are one; found "
                f"{self.wording!r}"
            )

    def forward(self, source: Source, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        numbers = (tasks * self.count // source.size).tolist()
        return tasks, [Start(hint=self.text(number)) for number in numbers]

    def text(self, number: int) -> str:
        """Returns the text that is appended to a prompt of part `number`."""
        return self.wording.replace("{number}", str(number))


class ShortestCorrect(Select):
    """Keeps, of each group, the `count` right rows with the fewest decisions; ties: the earlier row.

    A row is right if its outcome is at least `right`. If only some answers contain a reasoning part, the kept rows show
    which tasks need it. Source: the preferences behind the switch of EconProver, arXiv:2509.12603.
    """

    count: int = 1
    right: float = 1.0

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        if self.count < 1:
            raise ValueError(f"sampling.ShortestCorrect: count must be >= 1, found {self.count}")

    def forward(self, experience: Experience) -> Experience:
        right = experience.outcome >= self.right
        length = torch.where(right, experience.lengths.double(), torch.inf)
        return experience[(ops.group_place(-length, experience.group) < self.count) & right]
