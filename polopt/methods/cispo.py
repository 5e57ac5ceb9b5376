"""CISPO: REINFORCE with a clipped, detached importance weight."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import ClipWeight, Surrogate, TokenMean, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
        authors="Chen, Aili and others",
        year=2025,
        arxiv="2506.13585",
    ),
    changes="REINFORCE on GRPO's advantage, with a capped, detached importance weight and a token mean: every token "
    "keeps its gradient.",
    room="objectives",
    tier="faithful",
)
def cispo(*, group: int = 16, low: float | None = None, high: float = 4.0) -> Algorithm:
    """A_i as in GRPO and L = (1 / sum_i |y_i|) sum_it -sg(clip(r_it, 1 - low, 1 + high)) A_i logp_it.

    low = None is the paper's setting, no lower bound; it tunes the upper one and does not print it. Ours caps
    the weight at 5. TRL's epsilon_high is that cap itself, verl's is our `high`: 5.0 there is 4.0 here. No KL.
    The paper divides by the tokens of each group, verl and we by the batch's. It adds DAPO's dynamic sampling and
    length penalty, which `.but(sampling=..., reward=...)` sets.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(ratio=TokenRatio(), trust=ClipWeight(low=low, high=high), aggregate=TokenMean()),
    )
