"""STEER: less weight on tokens whose update would change the entropy more."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import Clip, TokenMean
from polopt.objectives.parts import Ratio, Weight, full_batch_of
from polopt.objectives.ratios import TokenRatio


@method(
    paper=Paper(
        title="Rethinking Entropy Interventions in RLVR: An Entropy Change Perspective",
        authors="Hao, Zhezheng and others",
        year=2025,
        arxiv="2510.10150",
    ),
    changes="GRPO whose tokens weigh less the more their update is predicted to change the policy's entropy; token "
    "mean, clip up to 1.28, dual clip 10, no KL.",
    room="objectives",
    tier="faithful",
)
def steer(
    *,
    group: int = 8,
    score: Literal["paper", "exact"] = "paper",
    map: Literal["exponential", "linear"] = "exponential",
    weight: float = 0.8,
    most: float = 1.2,
    low: float = 0.2,
    high: float = 0.28,
) -> Algorithm:
    """d_it = |A_i r_it (1 - pi_it) (log pi_it + H_it)|, with pi the token's probability now and H the entropy there;

        w_it = weight^(d_it / max(max d, 0.02))            exponential, from 1 down to `weight`
        w_it = most - (most - weight) (d_it - min d) / (max d - min d)                  linear
        L = mean over tokens of w_it PPO_it, clipped at 1 - low and 1 + high, dual clip 10; A_i as in GRPO.

    d is the release's. To first order the entropy changes by -A r [pi (log pi + H) - sum_b pi_b^2 (log pi_b + H)], for
    which the vocabulary is needed: score "exact". min d and max d are those of the whole optimiser batch; the release
    takes them from each micro-batch. It bounds pi away from 0 and 1 by 1e-8, we r by exp(20). One token with a large d
    brings all other weights close to 1. The linear map has `most` 1.2 there, the exponential one ends at 1.
    """
    return grpo(group=group, kl=0).but(
        {
            "objective.trust": Clip(low=low, high=high, dual=10.0),
            "objective.weights": [STEERWeight(score=score, map=map, low=weight, high=most)],
            "objective.aggregate": TokenMean(),
        }
    )


def entropy_change(
    push: Float[Tensor, "*N"],
    logp: Float[Tensor, "*N"],
    entropy: Float[Tensor, "*N"],
    entropy_slope: Float[Tensor, "*N"] | None = None,
) -> Float[Tensor, "*N"]:
    """First-order change of a decision's entropy H when its logits move by push (e_a - pi), a being its choice, as
    under the score function of push = A r.

        dH = -push [ pi_a (log pi_a + H) - sum_b pi_b^2 (log pi_b + H) ]        exact; the sum is `entropy_slope`
        dH ~ -push (1 - pi_a) (log pi_a + H)                                    the score of STEER, if that is None
    """
    surprise = logp + entropy
    if entropy_slope is None:
        return push * torch.expm1(logp) * surprise
    return -push * (logp.exp() * surprise - entropy_slope)


class STEERWeight(Weight):
    """Less weight on decisions whose update would change the entropy more. Source: STEER, arXiv:2510.10150.

    With d = |dH| of `entropy_change` for push = A r, and its extremes over the decisions of the whole batch,

        linear:       w = high - (high - low) (d - min d) / (max d - min d);  (low + high) / 2 if all d are equal
        exponential:  w = low^(d / max(max d, floor));  high is not used

    score "paper" uses the entropy alone, "exact" also a sum over the whole vocabulary (`extras.entropy_slope`).
    low: 0 <= low <= 1, for the largest change; exponential needs low > 0. ratio: computes r.
    """

    score: Literal["paper", "exact"] = "paper"
    map: Literal["exponential", "linear"] = "exponential"
    low: float = 0.8
    high: float = 1.2
    floor: float = 0.02
    ratio: Ratio = TokenRatio()

    reads = frozenset({"advantage"})

    @property
    def full_batch_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"logp", "entropy"} | ({"extras.entropy_slope"} if self.score == "exact" else set()))

    def setup(self) -> None:
        allowed = 0 <= self.low <= 1 and (self.low > 0 or self.map == "linear")
        if not allowed or self.high < self.low or self.floor <= 0:
            raise ValueError(
                "methods.steer.STEERWeight: need 0 <= low <= 1 (0 < low if exponential), high >= low and floor > 0, "
                f"found {self.low}, {self.high}, {self.floor}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        full_batch, full_evaluation = full_batch_of(experience)
        push = full_batch.advantage * self.ratio(full_batch, full_evaluation).exp()
        slope = full_evaluation.extras["entropy_slope"] if self.score == "exact" else None
        change = entropy_change(push, full_evaluation.logp, full_evaluation.entropy, slope).abs()
        weights = torch.ones_like(change)
        weights[full_batch.mask] = self._map(change[full_batch.mask])
        return experience.local_rows(weights)

    def _map(self, change: Tensor) -> Tensor:
        """Computes the weights [N] of all decisions."""
        if not change.numel():
            return change
        most = change.max()
        if self.map == "exponential":
            return (math.log(self.low) * change / most.clamp(min=self.floor)).exp()
        least = change.min()
        share = torch.where(most > least, (change - least) / (most - least), 0.5)
        return self.high - (self.high - self.low) * share
