"""The memories of policies that have some, before and after each decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.networks import MemoryNetwork


def remember(policy: Any, memories: Tensor, met: Tensor) -> Tensor:
    """Returns the memories [N, T, 2 units] of actor and critic after each of T decisions in turn. memories: before the
    first one, [N, 2 units]. met: as `met_by` returns it."""
    networks: tuple[MemoryNetwork, MemoryNetwork] = policy.actor, policy.critic
    return torch.cat([network.remember(memories, met) for network in networks], -1)


def met_by(policy: Any, observation: Tensor, action: Tensor) -> Tensor:
    """Returns observations [..., D], normalised, and actions [..., A], or choices [...] as one-hot vectors, as memories
    take them in."""
    if policy.space.actions is not None:
        action = torch.nn.functional.one_hot(action, policy.space.actions)
    return torch.cat([policy.normalised(observation), action.to(observation)], -1)


def extras_of(policy: Any, experience: Experience) -> Mapping[str, Any]:
    """Returns the extras of a batch. With memories they are those of each row's first decision, and what the networks
    now make of the decisions from there on, with a gradient, in the place of what was acted by."""
    if not isinstance(policy.actor, MemoryNetwork):
        return experience.extras
    (name,), extras, mask = policy.inputs, experience.extras, experience.mask
    N, T = mask.shape
    ends = (ops.per_decision_end(end, mask) for end in (experience.terminated, experience.truncated))
    begins = torch.ones_like(mask)
    begins[:, 1:] = (torch.stack([*ends]).any(0) | ~mask)[:, :-1]
    # A row for each stretch of decisions of one episode, so that one call goes through all of them.
    stretch = begins.flatten().cumsum(0) - 1
    first = begins.flatten().nonzero()[:, 0]
    place = torch.arange(N * T, device=mask.device) - first[stretch]
    met = ops.cleared(met_by(policy, extras["observation"][:, :T], extras["action"]), mask).flatten(0, 1)
    padded = met.new_zeros(len(first), int(place.max()) + 1, met.shape[1]).index_put((stretch, place), met)
    memory = extras[name][:, 0].to(met)
    before = met.new_zeros(len(first), memory.shape[1]).index_put((stretch.view(N, T)[:, 0],), memory)
    found = torch.cat([before[:, None], remember(policy, before, padded)[:, :-1]], 1)
    return {**extras, name: found[stretch, place].view(N, T, -1)}
