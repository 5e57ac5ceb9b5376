"""Rewards less the price of costs that are kept below limits."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.rewards.outcomes import EnvironmentReward
from polopt.rewards.parts import Reward

COST = "extras.cost"


class PricedCosts(Reward):
    """r_t - sum_k price_k c_t^k, with a price for each cost that rises while the cost's mean is above its limit:

        price_k <- max(0, price_k + lr (mean_t c_t^k - limit_k))

    after each batch, which so is judged by the prices of the batches before. The fixed point is the saddle point of the
    reward under the constraints E c^k <= limit_k. Prices change in training mode only.

    reward: r, one for each decision.
    limits: of the mean cost of a decision, in the order of the costs, `extras.cost` [B, T, K].
    lr: the prices' step size, in units of reward for a whole cost too much.
    initial: the prices at first.

    Source: Tessler, Mankowitz and Mannor 2018, arXiv 1805.11074.

    Raises:
        ExperienceError: the batch has another number of costs, or one reward for each row.
    """

    reward: Reward = EnvironmentReward()
    limits: tuple[float, ...] = (0.0,)
    lr: float = 0.1
    initial: float = 0.0

    reads = frozenset({COST})

    def setup(self) -> None:
        if not self.limits or not self.lr > 0 or not self.initial >= 0:
            raise ValueError(
                f"rewards.PricedCosts: need limits, lr > 0 and initial >= 0, found {self.limits}, {self.lr} and "
                f"{self.initial}"
            )
        self.register_buffer("prices", torch.full((len(self.limits),), self.initial, dtype=torch.float64))

    def forward(self, experience: Experience) -> Tensor:
        reward, cost = self.reward(experience), experience.extras["cost"]
        if reward.ndim != 2 or cost.shape[-1] != len(self.limits):
            raise ExperienceError(
                f"rewards.PricedCosts: needs a reward for each decision and {len(self.limits)} costs, as limits has; "
                f"found reward {list(reward.shape)} and extras.cost {list(cost.shape)}"
            )
        cost = torch.where(experience.mask[..., None], cost, 0)
        prices = self.get_buffer("prices")
        priced = reward - (cost * prices.to(cost)).sum(-1)
        if self.training and experience.mask.any():
            over = self._means(experience) - torch.tensor(self.limits, dtype=torch.float64, device=prices.device)
            prices.copy_((prices + self.lr * over).clamp(min=0))
        return priced

    def _means(self, experience: Experience) -> Tensor:
        """Returns the mean cost [K] of a decision."""
        costs = torch.where(experience.mask[..., None], experience.extras["cost"], 0).double()
        return torch.stack([ops.masked_mean(cost, experience.mask) for cost in costs.unbind(-1)])

    def batch_metrics(self, experience: Experience) -> Mapping[str, float]:
        found = {f"cost/{k}": float(mean) for k, mean in enumerate(self._means(experience))}
        return found | {f"cost/price/{k}": float(price) for k, price in enumerate(self.get_buffer("prices"))}
