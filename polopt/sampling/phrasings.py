"""The same question in other words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.sampling.parts import Guide, Source, Start


class Phrasings(Guide):
    """Every task once behind each of these endings of its prompt, "" for the prompt as it is: groups of their own, of
    one meaning. Each begins afresh, without having read the others.

    `credit.Strata(by=credit.Noted(name="index"), within=credit.Everyone())` are the rows of one meaning.
    """

    endings: Sequence[str]

    def setup(self) -> None:
        if len(set(self.endings)) < len(self.endings) or not self.endings:
            raise ValueError(f"sampling.Phrasings needs endings that differ, one at least, found {list(self.endings)}")

    @property
    def each(self) -> int:  # type: ignore[override]
        return len(self.endings)

    def forward(self, source: Source, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        starts = [Start(hint=ending) for ending in self.endings]
        return torch.repeat_interleave(tasks, self.each), starts * len(tasks)
