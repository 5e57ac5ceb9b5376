"""Predicates on rows: conditions of rewards and of penalties."""

from __future__ import annotations

import math
import re
from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.part import Part


class Mark(Part):
    """Base of predicates on rows: `mark(experience) -> [B] bool`.

    reads_batch: whether the predicate depends on other rows of the batch, so that it must receive the whole batch.
    """

    reads_batch: ClassVar[bool] = False

    def forward(self, experience: Experience) -> Tensor:
        raise NotImplementedError


class OutcomeAtLeast(Mark):
    """Marks rows whose outcome reaches `threshold`."""

    threshold: float = 1.0

    reads = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome >= self.threshold


class SignalAbove(Mark):
    """Marks rows whose world signal `name`, `extras["signal_<name>"]` [B], is above `above`; NaN, a missing signal, is
    not."""

    name: str
    above: float = 0.5

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.signal_{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.extras[f"signal_{self.name}"] > self.above


class TaskKindIs(Mark):
    """Marks rows whose task is of one of these kinds, `extras["kind"]`."""

    kinds: tuple[str, ...]

    reads = frozenset({"extras.kind"})

    def forward(self, experience: Experience) -> Tensor:
        return torch.tensor([kind in self.kinds for kind in experience.extras["kind"]], device=experience.device).bool()


class AnswerMatches(Mark):
    """Marks rows whose answer, `extras["answer"]`, the regular expression `pattern` matches anywhere; `invert` negates
    it."""

    pattern: str
    invert: bool = False

    reads = frozenset({"extras.answer"})

    def setup(self) -> None:
        try:
            re.compile(self.pattern, re.DOTALL)
        except re.error as error:
            raise ValueError(
                f"rewards.AnswerMatches: pattern {self.pattern!r} is no regular expression: {error}"
            ) from None

    def forward(self, experience: Experience) -> Tensor:
        found = [re.search(self.pattern, text, re.DOTALL) is not None for text in experience.extras["answer"]]
        return torch.tensor(found, device=experience.device).bool() != self.invert


class LongerThan(Mark):
    """Marks rows with more than `than` decisions."""

    than: int

    def forward(self, experience: Experience) -> Tensor:
        return experience.lengths > self.than


class SolvedGroups(Mark):
    """Marks rows of groups of which at least one row and at least a fraction `least` is right; at 1 all must be."""

    least: float = 1.0
    right: Mark = OutcomeAtLeast()

    reads = frozenset({"group"})
    reads_batch = True

    def setup(self) -> None:
        if not 0 <= self.least <= 1:
            raise ValueError(f"rewards.SolvedGroups: least must be in [0, 1], found {self.least}")

    def forward(self, experience: Experience) -> Tensor:
        rate = ops.group_mean(self.right(experience).double(), experience.group)
        return (rate >= self.least) & (rate > 0)


class TopGroups(Mark):
    """Marks rows of the ceil(share n) groups, of the batch's n, with the highest fraction of right rows, if some row is
    right.

    Ties are broken in favour of the group that comes first in the batch. Source: batch-wise top-lambda selection in
    GRPO-lambda, arXiv:2505.18086.
    """

    share: float = 0.2
    right: Mark = OutcomeAtLeast()

    reads = frozenset({"group"})
    reads_batch = True

    def setup(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"rewards.TopGroups: share must be in [0, 1], found {self.share}")

    def forward(self, experience: Experience) -> Tensor:
        group = experience.group
        index, size = ops.group_index(group)
        rate = ops.group_mean(self.right(experience).double(), group)
        first = ops.group_first(group)
        order = first.argsort()
        order = order[rate[first][order].argsort(descending=True, stable=True)]
        chosen = torch.zeros_like(size, dtype=torch.bool)
        # Slightly less, so that rounding does not make two groups of 0.2 of 5.
        chosen[order[: math.ceil(self.share * len(size) - 1e-9)]] = True
        return chosen[index] & (rate > 0)
