"""An entropy reward: the surprisal of each decision."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.rewards.parts import Reward


class SurprisalPenalty(Reward):
    """Reward -coefficient * rollout_logp of the behaviour policy, on each decision.

    Its expectation is coefficient times the entropy of whole rows, and so is, on policy, its policy gradient. Outcome
    plus this reward has one optimal policy, the softmax of outcome / coefficient, which is continuous in the outcome.
    Unlike an entropy bonus in the loss, which credits each decision with its own entropy alone, the reward also credits
    a decision with the entropy of later ones. `KLPenalty` with k1 and a uniform reference is the same up to a constant
    for each decision.
    """

    coefficient: float = 0.01

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience) -> Tensor:
        return -self.coefficient * torch.where(experience.mask, experience.rollout_logp, 0)
