"""Balances that a policy chooses by state, and the actions that it proposes at them."""

from __future__ import annotations

import math
from typing import Any

from torch import Generator, Tensor, nn

from polopt.networks import BalanceActor
from polopt.policies.head import Action
from polopt.policies.heads import SquashedGaussian


def choose(policy: Any, observation: Tensor, generator: Generator) -> Action:
    """Samples a balance [..., 1] of a policy's balance model in each state [..., D], and its log-density [...], with a
    gradient through the sample; the density is that of balances scaled from their bounds to [-1, 1].

    Raises:
        ValueError: the policy has no balance model.
    """
    actor = _actor(policy)
    law = actor.law(policy.normalised(observation))
    balance, logp = SquashedGaussian([actor.low], [actor.high]).to(observation.device).sample(law, generator)
    return Action(balance, logp + math.log((actor.high - actor.low) / 2))


def propose(policy: Any, observation: Tensor, generator: Generator) -> Action:
    """Samples an action [..., A] at a chosen balance in each state [..., D], and the log-density [...] of the balance,
    with a gradient in the balance model alone.

    Raises:
        ValueError: as `choose`.
    """
    balance, logp = choose(policy, observation, generator)
    output = _actor(policy).frozen_at(policy.normalised(observation), balance)
    log_std = None if policy.log_std is None else policy.log_std.detach()
    return Action(policy.propose_of(policy.head.law(output, log_std), generator).action, logp)


def _actor(policy: Any) -> BalanceActor:
    actor: nn.Module = policy.actor
    if not isinstance(actor, BalanceActor):
        raise ValueError(
            "the method chooses a balance in each state, and the policy has no model of balances; set its trunk to "
            "networks.BalanceFamily"
        )
    return actor
