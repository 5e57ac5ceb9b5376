"""Filters of rollouts."""

from __future__ import annotations

import torch

from polopt import ops
from polopt.experience import Experience
from polopt.sampling.parts import Select
from polopt.setting_types import Unbounded


class MixedGroups(Select):
    """Keeps the groups whose outcomes differ; a group of equal outcomes has no relative advantage.

    The filter compares `outcome`, the environment's result, not the shaped reward, whose small differences (lengths)
    would keep every group. Source: dynamic sampling in DAPO, arXiv:2503.14476.
    """

    reads = frozenset({"outcome", "group"})

    def forward(self, experience: Experience) -> Experience:
        index, count = ops.group_index(experience.group)
        low = experience.outcome.new_full((len(count),), torch.inf)
        high = low.neg().scatter_reduce(0, index, experience.outcome, "amax")
        low = low.scatter_reduce(0, index, experience.outcome, "amin")
        return experience[(high > low)[index]]


class TopK(Select):
    """Keeps the `count` rows of each group with the highest outcome (ties: the earlier row), None for all, among those
    of at least `threshold`.

    With one row per prompt this is RAFT's best-of-n, arXiv:2304.06767.
    """

    count: int | None = 1
    threshold: Unbounded = -float("inf")

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"sampling.TopK: count must be >= 1, found {self.count}")

    def forward(self, experience: Experience) -> Experience:
        keep = experience.outcome >= self.threshold
        if self.count is not None:
            keep = keep & (ops.group_place(experience.outcome, experience.group) < self.count)
        return experience[keep]


class UniqueAnswers(Select):
    """Keeps the first row of each group with a given text, `extras["answer"]`. Source: RFT, arXiv:2308.01825."""

    reads = frozenset({"group", "extras.answer"})

    def forward(self, experience: Experience) -> Experience:
        seen: set[tuple[int, str]] = set()
        rows = []
        for row, key in enumerate(zip(experience.group.tolist(), experience.extras["answer"], strict=True)):
            if key not in seen:
                seen.add(key)
                rows.append(row)
        return experience[rows]


class NonZeroAdvantage(Select):
    """Keeps the rows with a nonzero advantage at some decision.

    If every decision has the same weight, rows without advantage dilute the others. The part is for an algorithm's
    `select`. An advantage counts as 0 if its size is within rounding of a return that equals its baseline: in a group
    with returns R and advantages A, |A| <= 16 eps max|R| max|A| / (max R - min R), with eps of the returns' precision.
    The difference of equal numbers may be 0 or 1e-16, depending on the order of the rows.
    """

    reads = frozenset({"advantage", "reward", "group"})

    def forward(self, experience: Experience) -> Experience:
        returns, group = experience.returns(), experience.group
        row = ops.row_size(experience.advantage, experience.mask)
        most = lambda x: -ops.group_least(-x, group)  # noqa: E731
        spread = most(returns) - ops.group_least(returns, group)
        unit = torch.where(spread > 0, most(row) / torch.where(spread > 0, spread, 1), 0)
        return experience[row > 16 * torch.finfo(returns.dtype).eps * most(returns.abs()) * unit]
