"""Routing of prompts to the policy with the best trade-off of success and cost."""

from __future__ import annotations

import torch
from torch import Tensor


def route(chance: Tensor, cost: Tensor, weight: float = 0.0) -> Tensor:
    """Selects the policy of highest chance - weight * cost for each prompt, [prompts]; ties go to the first.

    Args:
        chance: [policies, prompts] predicted success rates. cost: [policies], or [policies, prompts].
        weight: the success rate that a unit of cost must gain; 0 selects the best, a large one the cheapest.

    Raises:
        ValueError: shapes that do not fit.

    Source: V0, arXiv:2602.03584.
    """
    if chance.ndim != 2 or cost.shape not in (chance.shape, chance.shape[:1]):
        raise ValueError(
            f"route: chance must be [policies, prompts] and cost [policies] or like it, found {list(chance.shape)} "
            f"and {list(cost.shape)}"
        )
    return (chance - weight * (cost if cost.ndim == 2 else cost[:, None])).argmax(0)


def router_regret(truth: Tensor, chosen: Tensor) -> Tensor:
    """Regret relative to the best policy for each prompt: mean of max_m truth[m, x] - truth[chosen(x), x].

    truth: [policies, prompts] true success rates. chosen: [prompts].
    """
    chosen_truth = truth.gather(0, chosen[None])[0]
    return (truth.amax(0) - chosen_truth).mean() if truth.shape[1] else truth.new_tensor(torch.nan)
