"""DHPO: a clipped mixture of token-level and sequence-level ratios."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import HybridClip, NormalisedEntropy


@method(
    paper=Paper(
        title="Orchestrating Tokens and Sequences: Dynamic Hybrid Policy Optimization for RLVR",
        authors="Min, Zijun and others",
        year=2026,
        arxiv="2601.05607",
    ),
    changes="GRPO with a mixture of the token's ratio and GSPO's, each clipped in a band of its own before.",
    room="objectives",
    tier="reading",
)
def dhpo(
    *,
    group: int = 8,
    mix: float | Literal["entropy"] = 0.5,
    token: tuple[float, float] = (0.2, 0.2),
    sequence: tuple[float, float] = (3e-4, 4e-4),
) -> Algorithm:
    """With r_it the token's ratio, s_i GSPO's, and w the weight of the token's,

        rho_it = w r_it + (1 - w) s_i      rho'_it = w clip(r_it, token) + (1 - w) clip(s_i, sequence)
        L = mean_i (1/|y_i|) sum_t max(-A_i rho_it, -A_i rho'_it)

    with A_i as in GRPO. mix: w, a number (the paper's averaged mixing) or "entropy": the policy's entropy at the
    token, from 0 at the answer's smallest to 1 at its largest, without gradient (its entropy-guided mixing).
    token, sequence: the clip ranges of each ratio below and above 1.

    No code is published. That each ratio is clipped before they are mixed is the paper's; that the larger of clipped
    and free loss is taken, as in PPO, that entropies are scaled from the answer's smallest to its largest, and all
    numbers are our reading. w = 1 is GRPO without KL, w = 0 is GSPO.
    """
    weight = NormalisedEntropy() if isinstance(mix, str) else mix
    trust = HybridClip(token=token, sequence=sequence, weight=weight)
    return grpo(group=group, kl=0).but(**{"objective.trust": trust})
