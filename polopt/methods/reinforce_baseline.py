"""REINFORCE with a baseline: the same gradient on average, with less noise."""

from polopt.algorithm import Algorithm
from polopt.credit import Baseline, MovingAverage, RelativeAdvantage
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
    changes="REINFORCE with the return measured from a baseline that does not depend on the row itself.",
    room="credit",
    tier="proven",
)
def reinforce_baseline(*, baseline: Baseline = MovingAverage(decay=0.9), group: int = 1) -> Algorithm:  # noqa: B008
    """L = -(1/B) sum_i (R_i - b) sum_t logp_it.

    Any b that is independent of row i leaves the expected gradient alone. The default is the average return of
    earlier batches, 0 for the first. The batch's own mean, which contains row i, shrinks the gradient by 1 - 1/B. The
    constant of least variance is E[|g|^2 R] / E[|g|^2] with g the row's score; it is close to the mean.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(
            baseline=baseline.but(), scale=None
        ),  # a copy: two algorithms never share their average
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
    )
