"""Rewards by decision, discounted sums to go, and generalised advantage estimation."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from polopt.ops.positions import last_decision, next_decision, turn_place, turns


def per_decision_reward(
    reward: Float[Tensor, "B"] | Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Returns the reward of each decision: an outcome [B] is assigned to the row's last decision."""
    if reward.ndim == 1:
        return torch.where(last_decision(mask), reward[:, None], 0)
    return torch.where(mask, reward, 0)


def per_decision_end(ended: Bool[Tensor, "B"] | Bool[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Returns whether the episode ended with each decision: a flag [B] is that of the row's last decision."""
    return last_decision(mask) & ended[:, None] if ended.ndim == 1 else mask & ended


def discounted_to_go(
    x: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], discount: float, ended: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B T"]:
    """Computes y_t = x_t + discount * y_next over the decisions alone: positions in between do not count.

    ended: decisions after which nothing follows, y_next = 0.
    """
    return _to_go(x, mask, discount, ended)


def _to_go(x: Tensor, mask: Tensor, discount: float, ended: Tensor | None) -> Tensor:
    # y_t = found_t + share_t y_(t + span): both sums are of `span` positions, which double until they are all.
    found = torch.where(mask, x, 0)
    share = torch.where(mask, discount, torch.ones_like(x))
    if ended is not None:
        share = share.masked_fill(mask & ended, 0)
    span = 1
    while span < x.shape[1]:
        later = pad(found[:, span:], (0, span))
        # 0 times what follows is 0, whatever that is.
        found = found + share * torch.where(share == 0, 0, later)
        share = share * pad(share[:, span:], (0, span))
        span *= 2
    return torch.where(mask, found, 0)


def turn_to_go(
    x: Float[Tensor, "B T"], turn: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"], discount: float
) -> Float[Tensor, "turns"]:
    """Computes y_h = x_h + discount * y_(h + 1) over a row's turns, numbered as in `turns`, with x_h the sum of x over
    the decisions of turn h."""
    number, row, size = turns(turn, mask)
    sums = x.new_zeros(len(size)).index_add(0, number[mask], x[mask])
    place = turn_place(row)
    table = x.new_zeros(len(x), int(place.max()) + 1 if len(place) else 1)
    table[row, place] = sums
    taken = torch.zeros_like(table, dtype=torch.bool)
    taken[row, place] = True
    return discounted_to_go(table, taken, discount)[row, place]


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
    done, cut = terminated & mask, truncated & mask
    following = torch.where(done, 0, torch.where(cut, final_value, next_decision(value, mask)))
    return _to_go(reward + gamma * following - value, mask, gamma * lam, done | cut)
