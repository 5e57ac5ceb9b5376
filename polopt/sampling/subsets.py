"""Filters of rollouts and of decisions by their computed advantages."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.part_names import name_of
from polopt.sampling.parts import Select
from polopt.schedules import Schedule, now


def most_varied(x: Float[Tensor, "n"], keep: int) -> Bool[Tensor, "n"]:
    """Returns the mask of the `keep` of n numbers with the largest variance; exact, in O(n log n).

    The sum of squares about the mean is convex in each number, so some best subset is the i smallest and the keep - i
    largest numbers: every i is tried, with running sums over the sorted numbers. The choice among several best subsets
    does not depend on the order of the numbers, except among equal numbers.
    """
    chosen = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if not keep:
        return chosen
    order = x.argsort(stable=True)
    numbers = x[order].double()
    numbers = numbers - numbers.mean()
    nothing = numbers.new_zeros(1)
    sums, squares = torch.cat([nothing, numbers.cumsum(0)]), torch.cat([nothing, numbers.square().cumsum(0)])
    low = torch.arange(keep + 1, device=x.device)
    high = len(x) - keep + low
    total, square = (s[low] + s[-1] - s[high] for s in (sums, squares))
    i = int((square - total.square() / keep).argmax())
    chosen[order[:i]] = chosen[order[len(x) - keep + i :]] = True
    return chosen


class HighestVariance(Select):
    """Keeps the round(share n) of n rows, at least one, whose advantages have the largest variance.

    share: fraction of the rows, a number or a schedule.
    within: "batch" chooses among all rows, "group" in each group separately (two rows at least make sense there: one
        has no variance).

    A row's advantage is the mean over its decisions; rows without decisions are left out. Advantages are not centred
    again: the kept rows keep their baseline. Source: D3S, arXiv:2509.22115.
    """

    share: float | Schedule = 0.5
    within: Literal["batch", "group"] = "batch"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"advantage"} | ({"group"} if self.within == "group" else set()))

    def setup(self) -> None:
        _check_share(self, self.share)

    def forward(self, experience: Experience) -> Experience:
        advantage = ops.row_mean(experience.advantage, experience.mask)
        keep, share = torch.zeros(len(experience), dtype=torch.bool, device=experience.device), now(self.share)
        for rows in self._candidates(experience):
            keep[rows] = most_varied(advantage[rows], max(1, round(share * len(rows))) if len(rows) else 0)
        return experience[keep]

    def _candidates(self, experience: Experience) -> list[Tensor]:
        """Returns the rows with decisions, one tensor for each set that is chosen from."""
        decided = experience.mask.any(1)
        if self.within == "batch":
            return [decided.nonzero().flatten()]
        index, size = ops.group_index(experience.group)
        return [((index == g) & decided).nonzero().flatten() for g in range(len(size))]


class TopDecisions(Select):
    """Keeps the round(share n) of n decisions, at least one, with the largest |A_it| H_it, H the sampler's entropy.

    The others remain as context. Ties: the earlier decision. Source: D3S, arXiv:2509.22115.

    share: fraction of the decisions, a number or a schedule.
    within: "batch" ranks all decisions together, "row" each row's separately.
    """

    share: float | Schedule = 0.2
    within: Literal["batch", "row"] = "batch"

    reads = frozenset({"advantage", "entropy"})

    def setup(self) -> None:
        _check_share(self, self.share)

    def forward(self, experience: Experience) -> Experience:
        score, mask = experience.advantage.abs() * experience.entropy, experience.mask
        if self.within == "batch":
            keep = ops.top_share(score.reshape(1, -1), mask.reshape(1, -1), now(self.share)).reshape(mask.shape)
        else:
            keep = ops.top_share(score, mask, now(self.share))
        return experience.restrict(keep)


def _check_share(part: Select, share: float | Schedule) -> None:
    values = [value for _, value in share.knots] if isinstance(share, Schedule) else [share]
    if not all(0 < value <= 1 for value in values):
        raise ValueError(f"{name_of(type(part))}: share must be in (0, 1], found {share}")
