"""BAPO: PPO's clip with bounds that are adapted at every step to balance positive and negative advantages."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import BalancedClip, TokenMean
from polopt.objectives.balanced import Share


@method(
    paper=Paper(
        title="BAPO: Stabilizing Off-Policy Reinforcement Learning for LLMs via Balanced Policy Optimization "
        "with Adaptive Clipping",
        authors="Xi, Zhiheng and others",
        year=2025,
        arxiv="2510.18927",
    ),
    changes="GRPO with a token mean, no KL and clip bounds that are searched at every optimiser step to balance right "
    "and wrong answers.",
    room="objectives",
    tier="faithful",
)
def bapo_clip(
    *,
    group: int = 8,
    low: tuple[float, float] = (0.6, 0.9),
    high: tuple[float, float] = (1.2, 3.0),
    target: float = 1.0,
    share: Share = "surrogate",
) -> Algorithm:
    """A_i as in GRPO and, with bounds of the ratio itself,

        L = (1 / sum_i |y_i|) sum_it max(-A_i r_it, -A_i clip(r_it, c_low, c_high)), at most -3 A_i where A_i < 0

    c_low and c_high start at low[0] and high[0]. While P / N < target, c_low rises in steps of 0.05 to low[1], then
    c_high to high[1]. P adds up what pulls towards answers, N what pulls away from them, over the optimiser batch and
    under the current policy; where batches are split that costs a pass without gradient. target 1 is the paper's
    share of 0.5. The bounds are logged as clip/low and clip/high.

    share "surrogate" is the published code's and adds up the clipped terms: raising c_low then raises N, away from the
    target, so that c_low runs to its limit wherever P / N begins below the target. "gradient", polopt's own, adds up
    A r of the tokens that keep a gradient: each step then moves P / N towards the target. The
    ranges are the paper's; the code's configuration has 0.8 and 2.0 for the limits. On policy no bound acts.
    """
    trust = BalancedClip(low=low, high=high, target=target, share=share)
    return grpo(group=group, kl=0).but({"objective.trust": trust, "objective.aggregate": TokenMean()})
