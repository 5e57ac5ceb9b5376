"""Paraphrases of a task: different endings of its prompt, or consecutive tasks of the data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.sampling.parts import PromptAugmenter, Start, TaskSampler
from polopt.sampling.source_protocols import Source


class Paraphrases(PromptAugmenter):
    """Repeats every task with each of these endings of its prompt, "" for the prompt as it is.

    Each ending makes a group of its own; the rollouts of one do not see those of another.
    `features.Strata(by=features.RowField(name="index"), within=features.WholeBatch())` puts the rows of one task
    together.
    """

    endings: Sequence[str]

    def setup(self) -> None:
        if len(set(self.endings)) < len(self.endings) or not self.endings:
            raise ValueError(
                f"sampling.Paraphrases needs endings that differ, one at least, found {list(self.endings)}"
            )

    @property
    def each(self) -> int:  # type: ignore[override]
        return len(self.endings)

    def forward(self, source: Source, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        starts = [Start(hint=ending) for ending in self.endings]
        return torch.repeat_interleave(tasks, self.each), starts * len(tasks)


class ConsecutiveTasks(TaskSampler):
    """Selects tasks in runs of `each` consecutive numbers: 0 to each - 1, each to 2 each - 1, and so on.

    A shorter last run is left out. If every task of the data has `each` consecutive phrasings, a batch holds all of
    them.

    Raises:
        ValueError: the source has fewer tasks than one run.
    """

    each: int

    def setup(self) -> None:
        if self.each < 1:
            raise ValueError(f"sampling.ConsecutiveTasks: each must be >= 1, found {self.each}")

    def forward(self, source: Source, count: int) -> Tensor:
        runs = source.size // self.each
        if not runs:
            raise ValueError(
                f"sampling.ConsecutiveTasks: runs of {self.each} tasks need at least as many, found {source.size}; "
                "set each"
            )
        first = source.take(max(1, count // self.each)) % runs * self.each
        return (first[:, None] + torch.arange(self.each)).flatten()
