"""D3S: GRPO on a subset of rollouts and tokens of the largest gradient signal, with shares that grow over training."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import TokenMean
from polopt.sampling import HighestVariance, TopDecisions
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="Learning More with Less: A Dynamic Dual-Level Down-Sampling Framework for Efficient Policy Optimization",
        authors="Wang, Chao and Yang, Tao and others",
        year=2025,
        arxiv="2509.22115",
    ),
    changes="GRPO on the rows whose advantages vary most and their tokens of highest |A| H; a growing share of both.",
    room="sampling",
    tier="reading",
)
def d3s(
    *,
    group: int = 8,
    clip: float = 0.2,
    rows: tuple[float, float] = (0.25, 0.5),
    tokens: tuple[float, float] = (0.2, 0.6),
    steps: int = 100,
    within: str = "batch",
) -> Algorithm:
    """A_i is GRPO's; S = argmax over |S| = N of Var(A_S), across all groups of the batch; of the tokens in S the share
    K with the largest |A_i| H_it, H the sampler's entropy, stays in the loss: a mean over those tokens.

    N (as a share of the rows) and K go linearly from the first to the second number of `rows` and `tokens` in `steps`
    batches. within="group" chooses in each group for itself: D3S-I. The paper's end points are not known to us; these
    learn from 16 % of GRPO's tokens over a run ("under 20 %"). Baselines are not computed again for the kept rows.
    Where all advantages are equal the paper takes a random subset, here the first rows; neither has a gradient.
    """
    share = [Schedule(knots=[(0, first), (steps, last)]) for first, last in (rows, tokens)]
    select = [HighestVariance(share=share[0], within=within), TopDecisions(share=share[1])]  # type: ignore[arg-type]
    return grpo(group=group, clip=clip, kl=0).but({"select": select, "objective.aggregate": TokenMean()})
