"""A policy that is a rule: a function from observations to actions, without a distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from polopt.networks import Space
from polopt.policies.head import Action, HeadName
from polopt.policies.heads import head_of


class RulePolicy:
    """A rule, for what plays a policy: `act` takes the rule's action, whose logp is 0, without meaning.

    rule: from observations [N, D], and a generator, to actions [N] or [N, A]. space: of the environment.
    """

    normaliser = None

    def __init__(self, rule: Callable[[Tensor, Generator], Tensor], space: Space, device: str | torch.device) -> None:
        self.rule, self.space, self.device = rule, space, torch.device(device)
        name: HeadName = "gaussian" if space.actions is None else "categorical"
        unbounded = [math.inf] * (space.dimensions or 0)
        self.head = head_of(name, space.actions, unbounded, unbounded)

    @torch.no_grad()
    def act(
        self, observation: Tensor, generator: Generator, *, greedy: bool = False, legal: Tensor | None = None
    ) -> Action:
        """Returns the rule's action for each observation [N, D]."""
        action = self.rule(observation, generator)
        return Action(action, observation.new_zeros(len(observation)))
