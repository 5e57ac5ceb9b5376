"""BARFI: bi-level optimisation of the reward function, by implicit gradients of the policy's environment return."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit.estimators import RewardToGo
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.method import Paper, method
from polopt.methods.reinforce import reinforce
from polopt.objectives import EntropyBonus
from polopt.rewards.parts import Reward


@method(
    paper=Paper(
        title="Behavior Alignment via Reward Function Optimization",
        authors="Gupta, Dhawal and Chandak, Yash and others",
        year=2023,
        arxiv="2310.19007",
    ),
    changes="REINFORCE on a learned mix of the world's reward and a designer's hint, under a learned discount.",
    room="rewards",
    tier="reading",
)
def barfi(*, group: int = 1, features: int = 1, discount: float = 0.99, entropy: float = 0.0) -> Algorithm:
    """Inner: r_phi = phi_1 + phi_2 r_primary + phi_3 r_aux of a decision in its state, and
    Delta(theta, phi) = E sum_t grad log pi(a_t) sum_{j >= t} gamma_phi^(j - t) r_phi,j, iterated to Delta = 0.
    Outer: max over phi of J(theta(phi)) - price gamma_phi, J the expected environment return, along

        dJ/dphi = -(dJ/dtheta)' (d Delta / d theta)^{-1} (d Delta / d phi)

    with a damped inverse (`solvers.implicit_gradient`, by conjugate gradients or Neumann's series) and the policy
    going on from where it was. phi begins at (0, 1, 1), the naive sum.

    The algorithm is the inner update: phi is a buffer of `methods.barfi.AlignedReward`, gamma_phi one of
    `methods.barfi.LearnedDiscount`. The outer loop is `align` of `claims.problems.bilevel`, on expectations (`Bilevel`)
    or on episodes (`SampledBilevel` of `claims.problems.sampled`, which draws those of dJ/dtheta and those of Delta's
    derivatives apart). Off-policy inner updates are not implemented. Ours are `entropy`, which makes the inner solution
    unique, phi as a table, its Adam and all step sizes; the authors' code was not available. Language training has
    neither hints nor features, and refuses it."""
    changes = {"reward": AlignedReward(features=features), "credit": LearnedDiscount(start=discount)}
    kept = {"objective.regularise": [EntropyBonus(coefficient=entropy)]} if entropy else {}
    return reinforce(group=group).but(changes, **kept)


class LearnedDiscount(Credit):
    """Reward-to-go as in `RewardToGo`, with a gamma in a buffer that is initialised to `start`. An outer loop updates
    it through `logit`, of which gamma is the sigmoid, as it updates the reward `methods.barfi.AlignedReward`. Source:
    BARFI, arXiv:2310.19007."""

    start: float = 0.99

    reads = frozenset({"reward"})

    def setup(self) -> None:
        if not 0 < self.start < 1:
            raise ValueError(f"methods.barfi.LearnedDiscount: start must be in (0, 1), found {self.start}")
        self.register_buffer("logit", torch.tensor(self.start, dtype=torch.float64).logit())

    def forward(self, experience: Experience) -> Tensor:
        return RewardToGo.to_go(experience, self.get_buffer("logit").sigmoid().item())


class AlignedReward(Reward):
    """Computes r_t = phi_1(x_t) + phi_2(x_t) r_primary,t + phi_3(x_t) r_aux,t for each decision, phi_k linear in
    features x.

    r_primary is the environment's `reward`; r_aux is `extras["aux"]` [B, T], the designer's auxiliary reward; x is
    `extras["features"]` [B, T, features], a description of a decision in its state, one-hot for a table. phi, [3,
    features] in a buffer, is initialised to (0, 1, 1), the plain sum. The part itself does not change phi: an outer
    loop optimises it for the primary return of the policy that is trained on this reward. Source: BARFI,
    arXiv:2310.19007.
    """

    features: int = 1

    reads = frozenset({"reward", "extras.aux", "extras.features"})

    def setup(self) -> None:
        if self.features < 1:
            raise ValueError(f"methods.barfi.AlignedReward: features must be >= 1, found {self.features}")
        start = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
        self.register_buffer("phi", start[:, None].repeat(1, self.features))

    def forward(self, experience: Experience) -> Tensor:
        aux, features = experience.extras["aux"], experience.extras["features"]
        B, T = experience.mask.shape
        if aux.shape != (B, T) or features.shape != (B, T, self.features):
            raise ExperienceError(
                f"methods.barfi.AlignedReward: extras['aux'] must be [B, T] = {[B, T]} and extras['features'] [B, T, "
                "features] = "
                f"{[B, T, self.features]}, found {list(aux.shape)} and {list(features.shape)}"
            )
        primary = ops.per_decision_reward(experience.reward, experience.mask)
        shares = features @ self.get_buffer("phi").to(features.dtype).T
        reward = shares[..., 0] + shares[..., 1] * primary + shares[..., 2] * aux
        return torch.where(experience.mask, reward, 0)
