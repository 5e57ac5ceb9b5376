"""Rewards by decision, discounted sums to go, and generalised advantage estimation."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polopt.ops.positions import last_decision


def per_decision_reward(
    reward: Float[Tensor, "B"] | Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Returns the reward of each decision: an outcome [B] is assigned to the row's last decision."""
    if reward.ndim == 1:
        return torch.where(last_decision(mask), reward[:, None], 0)
    return torch.where(mask, reward, 0)


def discounted_to_go(
    x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], discount: float, ended: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B T"]:
    """Computes y_t = x_t + discount * y_next over the decisions alone: positions in between do not count.

    ended: decisions after which nothing follows, y_next = 0.
    """
    y = torch.zeros_like(x)
    carry = x.new_zeros(len(x))
    for t in range(x.shape[1] - 1, -1, -1):
        after = carry if ended is None else torch.where(ended[:, t], 0, carry)
        carry = torch.where(mask[:, t], x[:, t] + discount * after, carry)
        y[:, t] = torch.where(mask[:, t], carry, 0)
    return y


def gae(
    reward: Float[Tensor, "B T"],
    value: Float[Tensor, "B T"],
    final_value: Float[Tensor, "B T"],
    terminated: Bool[Tensor, "B T"],
    truncated: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    gamma: float,
    lam: float,
) -> Float[Tensor, "B T"]:
    """Generalised advantage estimation, arXiv:1506.02438, over the decisions alone.

    delta_t = r_t + gamma V_next - V_t and A_t = delta_t + gamma lam A_next, where "next" is the row's next
    decision. At a terminated decision V_next = 0; at a truncated one V_next = final_value_t, the value of
    the state in which the episode was cut off; after either, A_next = 0.
    """
    advantage = torch.zeros_like(value)
    carry = following = value.new_zeros(len(value))
    for t in range(value.shape[1] - 1, -1, -1):
        decided = mask[:, t]
        done, cut = terminated[:, t] & decided, truncated[:, t] & decided
        following = torch.where(cut, final_value[:, t], following)
        following = torch.where(done, 0, following)
        delta = reward[:, t] + gamma * following - value[:, t]
        now = delta + gamma * lam * torch.where(done | cut, 0, carry)
        advantage[:, t] = torch.where(decided, now, 0)
        carry = torch.where(decided, now, carry)
        following = torch.where(decided, value[:, t], following)
    return advantage
