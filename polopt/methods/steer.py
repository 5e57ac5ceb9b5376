"""STEER: less weight on tokens whose update would change the entropy more."""

from typing import Literal

import torch

from polopt.algorithm import Algorithm
from polopt.lab.entropies import arms, correlation, entropy_after, entropy_kept, softmaxes
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import Clip, STEERWeight, TokenMean
from polopt.objectives.entropy import entropy_change
from polopt.ops import entropy_of
from polopt.policies.vocabulary import entropy_slope


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


@steer.claim(
    "Over 4,000 random distributions of 50 choices the exact score is the change of entropy; the paper's is related.",
    baseline="the paper's score",
)
def first_order() -> Finding:
    logits, generator = softmaxes(4000, 50), torch.Generator().manual_seed(1)
    logp = logits.log_softmax(-1)
    chosen = torch.multinomial(logp.exp(), 1, generator=generator)
    push = torch.randn(4000, 1, generator=generator, dtype=torch.double)
    step = push * (torch.zeros_like(logits).scatter(1, chosen, 1.0) - logp.exp())
    true = entropy_after(logits, 1e-4 * step) / 1e-4
    known = (push[:, 0], logp.gather(1, chosen)[:, 0], entropy_of(logp))
    exact, paper = entropy_change(*known, entropy_slope(logp)), entropy_change(*known)
    agree = (paper.sign() == true.sign()).double().mean().item()
    measured = {"exact": correlation(exact, true), "paper": correlation(paper, true), "paper, equal signs": agree}
    return Finding(
        measured=measured,
        criterion="correlation exact >= 0.999, paper within [0.5, 0.8]",
        holds=measured["exact"] >= 0.999 and 0.5 <= measured["paper"] <= 0.8,
    )


@steer.claim(
    "With weights down to 0.2 a bandit learnt to 0.98 success keeps more entropy, most with the exact score.",
    baseline="weights of 1 (GRPO)",
    cost="slow",
)
def keeps_entropy() -> Finding:
    plain, paper, exact, published = (
        entropy_kept(steer(group=16, score=score, weight=weight), arms(), success=0.98, steps=600, rate=1.0)  # type: ignore[arg-type]
        for score, weight in (("paper", 1.0), ("paper", 0.2), ("exact", 0.2), ("paper", 0.8))
    )
    return Finding(
        measured={
            "at 0.98, weights of 1": plain.then,
            "at 0.98, paper's score": paper.then,
            "at 0.98, exact score": exact.then,
            "at the end, weights of 1": plain.last,
            "at the end, paper's score": paper.last,
            "at the end, exact score": exact.last,
            "at the end, paper's score down to 0.8": published.last,
            "least success": min(k.success for k in (plain, paper, exact)),
        },
        criterion="at 0.98: paper > 1.5x, exact > 2x GRPO's; at the end exact >= 5x and > paper; success >= 0.98",
        holds=exact.then > 2 * plain.then
        and paper.then > 1.5 * plain.then
        and exact.last >= max(5 * plain.last, paper.last)
        and all(k.reached and k.success >= 0.98 for k in (plain, paper, exact)),
        note="The default, down to 0.8, is a mild intervention: what it leaves differs little from GRPO's.",
    )
