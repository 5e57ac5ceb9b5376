"""Credit of transformed rewards: the returns are transformed over the whole batch, then credited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Credit
from polopt.credit.relative import RelativeAdvantage
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SameKind
from polopt.fields import check_shape

Norm = Literal["zscore", "minmax", "robust", "cdf"]
EPS = 1e-8


class RewardTransform(Credit):
    """Another credit of transformed rewards, `worth(returns [B], experience) -> [B]`, one for each row.

    They replace the batch's reward, so that a critic is trained in the units in which its values are used.
    """

    credit: Credit = RelativeAdvantage()

    reads = frozenset({"reward"})

    def worth(self, returns: Tensor, experience: Experience) -> Tensor:
        raise NotImplementedError

    def credited(self, experience: Experience) -> Experience:
        returns = experience.returns().detach()
        worth = check_shape(self.worth(returns, experience), returns, self)
        return self.credit.credited(experience.replace(reward=worth))

    def forward(self, experience: Experience) -> Tensor:
        return self.credited(experience).advantage

    def value_target(self, experience: Experience) -> Tensor | None:
        return self.credited(experience).value_target


class StandardisedReturns(RewardTransform):
    """Returns standardised within their kind of task, so that no source has more weight because its rewards are larger:

        zscore: (R - mean) / (std + eps), n - 1 in std's denominator        minmax: (R - least) / (most - least + eps)
        robust: tanh((R - median) / (1.4826 MAD + eps)), MAD the median of |R - median|
        cdf: the fraction of rows below, ties counted half, 0 to 1

    over the rows of a group of `within` in this batch. Rows that are all alike get 0, under cdf 0.5. A credit that
    itself divides by a group's standard deviation undoes any of these that is linear. Source: GTAlign,
    arXiv:2510.08872, which takes zscore.
    """

    credit: Credit = RelativeAdvantage()
    by: Norm = "zscore"
    within: Grouping = SameKind()

    def worth(self, returns: Tensor, experience: Experience) -> Tensor:
        return standardised(returns, self.within(experience), self.by)


def standardised(x: Tensor, group: Tensor, by: Norm) -> Tensor:
    """Standardises numbers [B] within their group; see `StandardisedReturns`."""
    centred = x - ops.group_mean(x, group)
    if by == "zscore":
        return torch.where(centred == 0, 0, centred / (ops.group_std(x, group) + EPS))
    if by == "minmax":
        low, high = ops.group_least(x, group), -ops.group_least(-x, group)
        return (x - low) / (high - low + EPS)
    if by == "robust":
        middle = _by_group(x, group, _median)
        apart = x - middle
        spread = _by_group(apart.abs(), group, _median)
        return torch.where(apart == 0, 0, torch.tanh(apart / (1.4826 * spread + EPS)))
    below, level = ops.places(x, group)
    return (below + level.to(x.dtype) / 2) / ops.group_size(group)


def _median(x: Tensor) -> Tensor:
    """Computes the median, the mean of the two middle values for an even number."""
    ordered = x.sort().values
    n = len(x)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _by_group(x: Tensor, group: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Applies `of` to each group's numbers, and returns the result on each of its rows."""
    found = torch.empty_like(x)
    for number in group.unique():
        rows = group == number
        found[rows] = of(x[rows])
    return found


class ReturnsPlusMeasures(RewardTransform):
    """own * return + sum_k weight_k m_k, with measures that may read other rows of the batch. weights: one for each
    measure. own: the weight of the row's own return."""

    credit: Credit = RelativeAdvantage()
    measures: Sequence[RowFeature]
    weights: Sequence[float]
    own: float = 1.0

    def setup(self) -> None:
        if not len(self.measures) or len(self.measures) != len(self.weights):
            raise ValueError(
                f"credit.ReturnsPlusMeasures needs measures and as many weights, found {len(self.measures)} and "
                f"{len(self.weights)}"
            )

    def worth(self, returns: Tensor, experience: Experience) -> Tensor:
        added = [w * m(experience).to(returns.dtype) for w, m in zip(self.weights, self.measures, strict=True)]
        return self.own * returns + torch.stack(added).sum(0)
