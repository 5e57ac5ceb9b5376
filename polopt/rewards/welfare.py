"""One reward for two parties: welfare functions, and choices by them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polopt.rewards.parts import CombinedReward

# [K, ...] utilities of K parties, [K] weights -> [...] welfare.
Rule = Callable[[Tensor, Tensor], Tensor]


def geometric_mean(values: Tensor, weights: Tensor, floor: float = 0.0) -> Tensor:
    """(prod_k u_k^w_k)^(1 / sum w) over the first dimension, with u_k no less than floor: equal values give themselves.

    With equal weights it is the Nash product on the scale of one utility. Products of negative numbers would make two
    losses a gain, so nothing below the floor enters, and the floor is >= 0.
    """
    shaped = weights.reshape(-1, *[1] * (values.ndim - 1))
    logs = torch.where(shaped > 0, shaped * values.clamp(min=floor).log(), 0)
    return (logs.sum(0) / weights.sum()).exp()


def arithmetic_mean(values: Tensor, weights: Tensor) -> Tensor:
    """sum_k w_k u_k / sum w over the first dimension."""
    return torch.tensordot(weights / weights.sum(), values, 1)


def least(values: Tensor, weights: Tensor) -> Tensor:
    """The smallest of the values that have a weight, over the first dimension."""
    return values[weights > 0].amin(0)


def efficient(values: Tensor) -> Tensor:
    """[K, N] utilities of N choices -> [N] bool: no other choice is as good for all and better for one."""
    mine, other = values[:, :, None], values[:, None, :]
    return ~((other >= mine).all(0) & (other > mine).any(0)).any(1)


def choose(payoffs: Tensor, rule: Rule, price: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    """Which of N choices has the most welfare: [K, N] payoffs -> the choice's number, the first among equals.

    For steering while an answer is written: read the payoffs that a policy has laid out, multiply them by `price` [K]
    or [K, N], which a provider may set, and go on with the choice of most welfare. A price of one party for all choices
    leaves the geometric mean's choice where it is; one for each choice moves it.
    """
    weights = payoffs.new_ones(len(payoffs)) if weights is None else weights
    if price is not None:
        payoffs = payoffs * (price[:, None] if price.ndim == 1 else price)
    return rule(payoffs, weights).argmax()


class GeometricMean(CombinedReward):
    """(prod_k u_k^w_k)^(1 / sum w): worth nothing where any term is, so that no term can make up for another.

    With two terms of equal weight it is the root of the Nash product. floor: the least that a term counts for; at 0
    a single 0 would leave nothing to tell other answers apart, and a product of negative terms means nothing.
    """

    floor: float = 1e-4

    def setup(self) -> None:
        super().setup()
        if self.floor <= 0 or min(self.weights, default=1.0) < 0 or sum(self.weights or [1.0]) <= 0:
            raise ValueError(
                "rewards.GeometricMean: need floor > 0 and weights >= 0, not all 0, found "
                f"floor={self.floor}, weights={list(self.weights)}"
            )

    def rule(self, values: Tensor, weights: Tensor) -> Tensor:
        return geometric_mean(values, weights, self.floor)


class MinimumReward(CombinedReward):
    """The smallest of the terms: the welfare of whoever has least. Weights other than 0 make no difference."""

    def setup(self) -> None:
        super().setup()
        if self.weights and not any(w > 0 for w in self.weights):
            raise ValueError(f"rewards.MinimumReward needs a weight > 0, found {list(self.weights)}")

    def rule(self, values: Tensor, weights: Tensor) -> Tensor:
        return least(values, weights)
