"""Paraphrases of a task: different endings of its prompt, or consecutive tasks of the data."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.sampling.parts import TaskSampler
from polopt.sampling.source_protocols import Source


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
