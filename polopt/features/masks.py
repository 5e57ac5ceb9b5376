"""Conditions on the rows and tokens of a batch."""

from __future__ import annotations

import math
import re
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features.base import Mask, RowMask, TokenMask


class IsCorrect(RowMask):
    """Selects rows whose outcome reaches `threshold`; `invert` selects the others."""

    threshold: float = 1.0
    invert: bool = False

    reads = frozenset({"outcome"})

    def forward(self, experience: Experience) -> Tensor:
        return (experience.outcome >= self.threshold) != self.invert


class IsDemonstration(RowMask):
    """Selects demonstrated rows, see `Experience.is_demonstration`; `invert` selects the others."""

    invert: bool = False

    def forward(self, experience: Experience) -> Tensor:
        return experience.is_demonstration != self.invert


class SignalAbove(RowMask):
    """Selects rows whose signal `name` of the environment, `extras["signal_<name>"]` [B], is above `above`. NaN, a
    missing signal, is not."""

    name: str
    above: float = 0.5

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.signal_{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.extras[f"signal_{self.name}"] > self.above


class WellFormed(RowMask):
    """Selects rows that have ended by themselves, and in which the environment lost no turn to its form:
    `extras["signal_malformed"]` [B] is 0; `invert` selects the others."""

    invert: bool = False

    reads = frozenset({"terminated", "extras.signal_malformed"})

    def forward(self, experience: Experience) -> Tensor:
        over = experience.terminated
        ended = (over & experience.mask).any(1) if over.ndim == 2 else over
        return (ended & (experience.extras["signal_malformed"] == 0)) != self.invert


class TaskKindIs(RowMask):
    """Selects rows whose task is of one of these kinds, `extras["kind"]`; `invert` selects the others."""

    kinds: tuple[str, ...]
    invert: bool = False

    reads = frozenset({"extras.kind"})

    def forward(self, experience: Experience) -> Tensor:
        found = [(kind in self.kinds) != self.invert for kind in experience.extras["kind"]]
        return torch.tensor(found, device=experience.device).bool()


class AnswerMatches(RowMask):
    """Selects rows in whose answer, `extras["answer"]`, the regular expression `pattern` matches anywhere; `invert`
    selects the others."""

    pattern: str
    invert: bool = False

    reads = frozenset({"extras.answer"})

    def setup(self) -> None:
        try:
            re.compile(self.pattern, re.DOTALL)
        except re.error as error:
            raise ValueError(
                f"features.AnswerMatches: pattern {self.pattern!r} is no regular expression: {error}"
            ) from None

    def forward(self, experience: Experience) -> Tensor:
        found = [re.search(self.pattern, text, re.DOTALL) is not None for text in experience.extras["answer"]]
        return torch.tensor(found, device=experience.device).bool() != self.invert


class LongerThan(RowMask):
    """Selects rows with more than `than` decisions."""

    than: int

    def forward(self, experience: Experience) -> Tensor:
        return experience.lengths > self.than


class SolvedGroups(RowMask):
    """Selects rows of groups of which at least one row and at least a fraction `least` is right; at 1 all must be."""

    least: float = 1.0
    right: RowMask = IsCorrect()

    reads = frozenset({"group"})
    reads_batch = True

    def setup(self) -> None:
        if not 0 <= self.least <= 1:
            raise ValueError(f"features.SolvedGroups: least must be in [0, 1], found {self.least}")

    def forward(self, experience: Experience) -> Tensor:
        rate = ops.group_mean(self.right(experience).double(), experience.group)
        return (rate >= self.least) & (rate > 0)


class TopGroups(RowMask):
    """Selects the rows of the ceil(share n) groups, of the batch's n, with the highest fraction of correct rows. Groups
    without a correct row are never selected.

    Ties are broken in favour of the group that comes first in the batch. Source: batch-wise top-lambda selection in
    GRPO-lambda, arXiv:2505.18086.
    """

    share: float = 0.2
    right: RowMask = IsCorrect()

    reads = frozenset({"group"})
    reads_batch = True

    def setup(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"features.TopGroups: share must be in [0, 1], found {self.share}")

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


class HasTeacher(RowMask):
    """Selects rows with a teacher's signal, `extras["has_teacher_signal"]` [B] bool; with `below`, only those whose
    outcome is smaller than it. `invert` selects the others.

    With a teacher that reads another row's right answer, `below=1.0` selects the wrong rows of groups with a right one.
    Source: SRPO, arXiv:2604.02288.
    """

    below: float | None = None
    invert: bool = False

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras.has_teacher_signal"} | ({"outcome"} if self.below is not None else set()))

    def forward(self, experience: Experience) -> Tensor:
        rows = experience.extras["has_teacher_signal"]
        if self.below is not None:
            rows = rows & (experience.outcome < self.below)
        return rows != self.invert


class FieldMask(Mask):
    """Selects rows or tokens by a recorded flag, `extras[name]`; `invert` selects the others.

    unit: "row" for a flag [B] bool, "token" for one [B, T] bool.
    """

    name: str
    unit: Literal["row", "token"] = "row"  # type: ignore[misc]  # a setting here, a constant of every other feature
    invert: bool = False

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.extras[self.name] != self.invert


class Finished(TokenMask):
    """Selects decisions whose episode is over, terminated or truncated, by the end of the row; `invert` selects the
    others.
    """

    invert: bool = False

    reads = frozenset({"terminated", "truncated"})

    def forward(self, experience: Experience) -> Tensor:
        over = torch.zeros_like(experience.mask)
        for flag in (experience.terminated, experience.truncated):
            over = over | (flag if flag.ndim == 2 else flag[:, None])
        later = (over & experience.mask).flip(1).cumsum(1).flip(1) > 0  # at this decision, or at a later one
        return later != self.invert
