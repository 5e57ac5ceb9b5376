"""REINFORCE: the score function times the return."""

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, SequenceSum, Surrogate
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning",
        authors="Williams, Ronald J.",
        year=1992,
        venue="Machine Learning 8, 229-256",
    ),
    changes="The root of them all: every decision's log-probability, times the return of its row. No baseline.",
    room="objectives",
    tier="proven",
)
def reinforce(*, group: int = 1) -> Algorithm:
    """L = -(1/B) sum_i R_i sum_t logp_it.

    The gradient is unbiased for the expected return, at any batch size and any lengths, as long as the batch
    comes from the current policy. One step per batch: there is no ratio to correct for a second. Rows are
    summed over time; dividing by their length, as a token mean does, is another objective.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=None, scale=None),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
    )
