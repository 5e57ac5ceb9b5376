"""A learned mixture of the world's reward and an auxiliary reward, per state and action."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.rewards.parts import Reward


class AlignedReward(Reward):
    """Computes r_t = phi_1(x_t) + phi_2(x_t) r_primary,t + phi_3(x_t) r_aux,t for each decision, phi_k linear in
    features x.

    r_primary is the world's `reward`; r_aux is `extras["aux"]` [B, T], the designer's auxiliary reward; x is
    `extras["features"]` [B, T, features], a description of a decision in its state, one-hot for a table. phi, [3,
    features] in a buffer, is initialised to (0, 1, 1), the plain sum. The part itself does not change phi: an outer
    loop optimises it for the primary return of the policy that is trained on this reward. Source: BARFI,
    arXiv:2310.19007.
    """

    features: int = 1

    reads = frozenset({"reward", "extras.aux", "extras.features"})

    def setup(self) -> None:
        if self.features < 1:
            raise ValueError(f"rewards.AlignedReward: features must be >= 1, found {self.features}")
        start = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
        self.register_buffer("phi", start[:, None].repeat(1, self.features))

    def forward(self, experience: Experience) -> Tensor:
        aux, features = experience.extras["aux"], experience.extras["features"]
        B, T = experience.mask.shape
        if aux.shape != (B, T) or features.shape != (B, T, self.features):
            raise ExperienceError(
                f"rewards.AlignedReward: extras['aux'] must be [B, T] = {[B, T]} and extras['features'] [B, T, "
                "features] = "
                f"{[B, T, self.features]}, found {list(aux.shape)} and {list(features.shape)}"
            )
        primary = ops.per_decision_reward(experience.reward, experience.mask)
        shares = features @ self.get_buffer("phi").to(features.dtype).T
        reward = shares[..., 0] + shares[..., 1] * primary + shares[..., 2] * aux
        return torch.where(experience.mask, reward, 0)
