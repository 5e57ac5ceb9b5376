"""Statistics of the rows [B] of a group, and ranks within it. Groups may differ in size and rows come in any order."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

# The groups that were numbered last, and `group_index` of them, with how often each tensor had been written into.
_last: tuple[weakref.ref[Tensor], tuple[Tensor, Tensor], tuple[int, ...]] | None = None


def group_index(group: Int[Tensor, "B"]) -> tuple[Int[Tensor, "B"], Int[Tensor, "groups"]]:
    """Each row's group as a number from 0, and each group's size.

    Both are those of the call before if it had the same tensor, as most calls for a batch have, and none of the three
    was written into since.
    """
    global _last
    if torch.is_inference_mode_enabled() or group.is_inference():  # which counts no writes
        _, index, count = torch.unique(group, return_inverse=True, return_counts=True)
        return index, count
    last = _last
    if last is None or last[0]() is not group or last[2] != _writes(group, *last[1]):
        _, index, count = torch.unique(group, return_inverse=True, return_counts=True)
        _last = last = weakref.ref(group), (index, count), _writes(group, index, count)
    return last[1]


def _writes(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(tensor._version for tensor in tensors)


def crossed(group: Int[Tensor, "B"], value: Tensor) -> Int[Tensor, "B"]:
    """Numbers the groups of rows that share both their group and their value [B]."""
    _, kind = torch.unique(value, return_inverse=True)
    index, _ = group_index(group)
    return index * (kind.amax() + 1 if kind.numel() else 1) + kind


def numbered(labels: Sequence[Hashable]) -> list[int]:
    """Numbers labels from 0 in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def places(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> tuple[Int[Tensor, "B"], Int[Tensor, "B"]]:
    """Counts the rows of each row's group with a smaller x, and those with an equal x, itself included."""
    index, size = group_index(group)
    level, count = group_index(crossed(group, x))  # numbered by group, then by value
    return (count.cumsum(0) - count)[level] - (size.cumsum(0) - size)[index], count[level]


def normal_scores(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Each row's rank in its group as a quantile of N(0, 1): Phi^-1((rank - 1/2) / n), for ties their mean.

    Exactly antisymmetric: reversing the order changes signs alone, and a group of one or of equal rows has 0.
    """
    below, level = places(x, group)
    size = group_size(group)
    scores = torch.zeros_like(x)
    for n in size.unique().tolist():
        # Sums from one table, so that equal ranks in different groups have equal scores: they may be ranked again.
        quantiles = torch.special.ndtri((torch.arange(n, dtype=torch.float64, device=x.device) + 0.5) / n)
        total = torch.nn.functional.pad(quantiles.cumsum(0), (1, 0))
        rows = size == n
        first, last = below[rows], below[rows] + level[rows]
        mirrored = total[n - first] - total[n - last]
        scores[rows] = ((total[last] - total[first] - mirrored) / (2 * level[rows])).to(x.dtype)
    return scores


def group_sum(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Sum of each row's group. Groups may differ in size and rows come in any order."""
    index, count = group_index(group)
    return x.new_zeros(len(count)).index_add(0, index, x)[index]


def group_size(group: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Number of rows of each row's group, itself included."""
    index, count = group_index(group)
    return count[index]


def group_first(group: Int[Tensor, "B"]) -> Int[Tensor, "groups"]:
    """Returns the first row of each group, in the order of the group numbers."""
    index, count = group_index(group)
    rows = torch.arange(len(group), device=group.device)
    return torch.zeros_like(count).scatter_reduce(0, index, rows, "amin", include_self=False)


def group_least(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Minimum of each row's group."""
    index, count = group_index(group)
    return x.new_zeros(len(count)).scatter_reduce(0, index, x, "amin", include_self=False)[index]


def group_mean(
    x: Float[Tensor, "B"], group: Int[Tensor, "B"], count: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B"]:
    """Mean of each row's group; exactly x where the group is all equal. count: each row's weight, None for 1.

    A group of total count 0 has its least x for a mean.
    """
    # Rounding in the plain sum would leave tiny differences in an all-equal group, which a scale then amplifies.
    least = group_least(x, group)
    if count is None:
        return least + group_sum(x - least, group) / group_size(group)
    return least + group_sum(count * (x - least), group) / _group_count(x, group, count).clamp(min=1)


def _group_count(x: Float[Tensor, "B"], group: Int[Tensor, "B"], count: Int[Tensor, "B"] | None) -> Tensor:
    return group_size(group) if count is None else group_sum(count.to(x.dtype), group)


def leave_one_out_mean(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Mean of the *other* rows of each row's group: (sum - x_i) / (n - 1); 0 for a group of one."""
    n, least = group_size(group), group_least(x, group)
    above = x - least
    return torch.where(n > 1, least + (group_sum(above, group) - above) / (n - 1).clamp(min=1), 0)


def group_std(
    x: Float[Tensor, "B"], group: Int[Tensor, "B"], correction: int = 1, count: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "B"]:
    """Standard deviation of each row's group, sqrt(sum (x - mean)^2 / (n - correction)).

    correction 1 is the sample's, 0 the population's. 0 where n <= correction. count: as in `group_mean`; n is its sum.
    """
    n = _group_count(x, group, count)
    squares = (x - group_mean(x, group, count)) ** 2
    squares = group_sum(squares if count is None else count * squares, group)
    return torch.where(n > correction, (squares / (n - correction).clamp(min=1)).sqrt(), 0)


def prior_error(
    mean: Float[Tensor, "*N"], prior: Float[Tensor, "*N"], variance: Float[Tensor, "*N"]
) -> Float[Tensor, "*N"]:
    """max(0, (mean - prior)^2 - variance): estimate of a prior's squared error from a mean of this variance; 0 where
    sampling error alone explains their difference."""
    return ((mean - prior).square() - variance).clamp(min=0)


def group_place(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """Rank of each row in its group: 0 for the largest x, ties in the order of the rows."""
    # Stable sorts: by value, then by group.
    order = x.argsort(descending=True, stable=True)
    order = order[group[order].argsort(stable=True)]
    index, size = group_index(group[order])
    place = torch.arange(len(order), device=x.device) - (size.cumsum(0) - size)[index]
    return torch.empty_like(order).scatter(0, order, place)


def group_logsumexp(x: Float[Tensor, "B"], group: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Log of the sum of exp(x) over each row's group."""
    most = -group_least(-x, group)
    return most + group_sum((x - most).exp(), group).log()
