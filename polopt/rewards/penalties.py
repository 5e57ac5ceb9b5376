"""Penalties on length and on the distance to the reference policy."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.anchor import anchor_logp, check_anchor
from polopt.experience import Experience
from polopt.fields import ExperienceError, policy_field
from polopt.rewards.parts import Reward
from polopt.setting_types import Unbounded


class OverlongPenalty(Reward):
    """Soft penalty of the length |y|, with L = limit and c = buffer:
        0 if |y| <= L - c;    (L - c - |y|) / c in between;    -1 beyond L.

    limit: None takes the batch's horizon.
    buffer: None is a fifth of the limit, the paper's 4,096 of 20,480.

    Source: DAPO, arXiv:2503.14476, equation 13.

    Raises:
        ExperienceError: limit is None and the batch has no horizon.
    """

    limit: int | None = None
    buffer: int | None = None

    def setup(self) -> None:
        if self.buffer is not None and self.buffer < 1:
            raise ValueError(f"rewards.OverlongPenalty: buffer must be >= 1, found {self.buffer}")

    def forward(self, experience: Experience) -> Tensor:
        limit = self.limit if self.limit is not None else experience.horizon
        if limit is None:
            raise ExperienceError(
                "rewards.OverlongPenalty needs the longest row allowed: set OverlongPenalty(limit=...) or give the "
                "batch its "
                "horizon, found neither"
            )
        buffer = self.buffer if self.buffer is not None else max(1, limit // 5)
        length = experience.lengths.to(experience.precision)
        soft = ((limit - buffer - length) / buffer).clamp(max=0)
        return torch.where(length > limit, -1.0, soft)


class KLPenalty(Reward):
    """Reward -coefficient * KL estimate between the behaviour policy and the reference, on each decision.

    This is the classical placement of the KL term: inside the reward, without gradient of its own, so that the policy
    gradient of k1 is that of KL(policy || reference).

    turn: restricts the penalty to that turn's decisions, from 0.
    anchor: the policy in the reference's place: reference, previous, old, or the name of another that the stage gives.
    """

    coefficient: float = 0.05
    estimator: ops.KLEstimator = "k1"
    turn: int | None = None
    anchor: str = "reference"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        turn = {"turn"} if self.turn is not None else set()
        return frozenset({"rollout_logp", policy_field(self.anchor)} | turn)

    def setup(self) -> None:
        check_anchor(self, self.anchor)

    def forward(self, experience: Experience) -> Tensor:
        clean = experience.zero_masked()
        penalty = -self.coefficient * ops.kl_estimate(
            self.estimator, clean.rollout_logp, anchor_logp(clean, self.anchor)
        )
        return penalty if self.turn is None else torch.where(experience.turn == self.turn, penalty, 0)


class PolicyLogRatio(Reward):
    """r_t = clip(coefficient (log p_t - log q_t), -limit, limit) on each decision, with p and q two policies beside the
    learner: the reward that a policy p, trained from preferences with the reference q, implies for each token.

    Without a limit its sum over a row differs from p's implicit reward by a constant of the prompt alone, so that it is
    the same reward, paid earlier.

    coefficient (> 0): its unit. limit (> 0): the largest size of a decision's reward, inf for any. policy, anchor: the
    names of p and q. Source: RTO, arXiv:2404.18922.
    """

    coefficient: float = 1.0
    limit: Unbounded = float("inf")
    policy: str = "dpo"
    anchor: str = "reference"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.policy), policy_field(self.anchor)})

    def setup(self) -> None:
        for name in (self.policy, self.anchor):
            check_anchor(self, name)
        for name, value in (("coefficient", self.coefficient), ("limit", self.limit)):
            if value <= 0:
                raise ValueError(f"rewards.PolicyLogRatio: {name} must be > 0, found {value}")

    def forward(self, experience: Experience) -> Tensor:
        ratio = anchor_logp(experience, self.policy) - anchor_logp(experience, self.anchor)
        found = (self.coefficient * ratio).clamp(-self.limit, self.limit)
        return torch.where(experience.mask, found, 0)
