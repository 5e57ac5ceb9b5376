"""STEER: less weight on tokens whose update would change the entropy more."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import Clip, STEERWeight, TokenMean


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
