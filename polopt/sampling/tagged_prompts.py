"""One policy that speaks in several voices, each of which learns a part of the tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.sampling.parts import PromptAugmenter, Select, Start
from polopt.sampling.source_protocols import Source


class TaggedPrompts(PromptAugmenter):
    """Every task is asked with one of `count` texts behind its prompt, that of its part of the tasks.

    Part j holds the tasks of numbers from j n / count to before (j + 1) n / count, of n: tasks in the order of their
    difficulty, or of their subject, are parted by it. wording: the text, with {number} for j. Each voice learns from
    its own part alone, so that the policy's answers in different voices come to differ; to solve a task, ask it in all
    of them. Source: the trainable prefixes of EconProver, arXiv:2509.12603.
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
        """What stands behind a prompt that is asked with prefix `number`."""
        return self.wording.replace("{number}", str(number))


class ShortestCorrect(Select):
    """Keep, of each group, the `count` right rows with the fewest decisions; ties: the earlier row.

    A row is right whose outcome reaches `right`. Where some answers think first and others do not, this shows which
    tasks need it. Source: the preferences behind the switch of EconProver, arXiv:2509.12603.
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
