"""Rewards for two parties: welfare functions, and choices that maximise them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polopt.rewards.parts import CombinedReward

# (utilities [K, ...] of K parties, weights [K]) -> welfare [...].
Rule = Callable[[Tensor, Tensor], Tensor]


def geometric_mean(values: Tensor, weights: Tensor, floor: float = 0.0) -> Tensor:
    """Returns (prod_k u_k^w_k)^(1 / sum w) over the first dimension, with u_k clamped to floor from below.

    Equal values are their own mean. With equal weights it is the Nash product on the scale of one utility. Products of
    negative numbers would turn two losses into a gain, so values are clamped, and the floor is >= 0.
    """
    shaped = weights.reshape(-1, *[1] * (values.ndim - 1))
    logs = torch.where(shaped > 0, shaped * values.clamp(min=floor).log(), 0)
    return (logs.sum(0) / weights.sum()).exp()


def arithmetic_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Returns sum_k w_k u_k / sum w over the first dimension."""
    return torch.tensordot(weights / weights.sum(), values, 1)


def least(values: Tensor, weights: Tensor) -> Tensor:
    """Returns the smallest of the values with a weight > 0, over the first dimension."""
    return values[weights > 0].amin(0)


def efficient(values: Tensor) -> Tensor:
    """Returns the Pareto-efficient choices [N] bool of utilities [K, N]: no other choice is as good for all and better
    for one."""
    mine, other = values[:, :, None], values[:, None, :]
    return ~((other >= mine).all(0) & (other > mine).any(0)).any(1)


def choose(payoffs: Tensor, rule: Rule, price: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    """Returns the index of the choice with the highest welfare of payoffs [K, N], the first among equals.

    For steering during generation: parse the payoffs that a policy has written, multiply them by `price` [K] or [K, N],
    which a provider may set, and continue with the choice of highest welfare. A price of one party for all choices does
    not change the geometric mean's choice; a price for each choice does.
    """
    weights = payoffs.new_ones(len(payoffs)) if weights is None else weights
    if price is not None:
        payoffs = payoffs * (price[:, None] if price.ndim == 1 else price)
    return rule(payoffs, weights).argmax()


class GeometricMean(CombinedReward):
    """Geometric mean of the terms, (prod_k u_k^w_k)^(1 / sum w): 0 where any term is, so that no term compensates
    another.

    With two terms of equal weight it is the root of the Nash product.

    floor: lower bound of each term; with 0 a single zero would make all answers equal, and a product of negative terms
        is meaningless.
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
    """The smallest of the terms: the welfare of the worst-off party. The size of a weight > 0 makes no difference."""

    def setup(self) -> None:
        super().setup()
        if self.weights and not any(w > 0 for w in self.weights):
            raise ValueError(f"rewards.MinimumReward needs a weight > 0, found {list(self.weights)}")

    def rule(self, values: Tensor, weights: Tensor) -> Tensor:
        return least(values, weights)
