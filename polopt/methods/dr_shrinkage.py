"""DRos: a doubly robust estimate with weights that are shrunk, the largest most."""

from collections.abc import Sequence

from polopt.method import Paper, method
from polopt.metrics import (
    ActionValueModel,
    DoublyRobust,
    LoggedMetric,
    ShrunkWeights,
    TabularValues,
    least_error_of_limits,
)


@method(
    paper=Paper(
        title="Doubly Robust Off-Policy Evaluation with Shrinkage",
        authors="Su, Yi and Dimakopoulou, Maria and Krishnamurthy, Akshay and Dudik, Miroslav",
        year=2020,
        arxiv="1907.09623",
    ),
    changes="A doubly robust estimate whose importance weights are shrunk towards 0, the largest most.",
    room="metrics",
    tier="proven",
)
def dr_shrinkage(
    *,
    strength: float | None = None,
    candidates: Sequence[float] = (1.0, 10.0, 100.0, 1000.0, 10000.0),
    gamma: float = 1.0,
    model: ActionValueModel | None = None,
    folds: int = 2,
    level: float = 0.95,
) -> LoggedMetric:
    """Value of the target policy, estimated from n logged episodes as by `doubly-robust`, with shrunk weights u:

        1/n sum_i sum_t gamma^t [u_t (r_t - q(s_t, a_t)) + u_{t-1} v(s_t)],    u_t = strength w_t / (w_t^2 + strength)

    with w_t the product of the probability ratios up to step t and u_{-1} = 1. The shrunk weight minimises a bound on
    the mean squared error, for w unbounded and squared errors of the model of any size. strength -> infinity is
    `doubly-robust`; as it falls to 0 what remains is the model's mean value of the first states.

    strength: lambda in the paper; None chooses among `candidates` and no shrinkage by the least estimated squared
        error, the variance of the mean plus the square of its difference to the unlimited estimate.
    gamma, model, folds, level: as in `doubly-robust`.

    The paper is about decisions of one step; weights of whole beginnings for longer episodes are ours, as is the
    estimate of the bias without a bound. Its other form, pessimistic shrinkage, is clipping: `metrics.ClippedWeights`.
    """
    base = DoublyRobust(gamma=gamma, model=TabularValues() if model is None else model, folds=folds, level=level)
    if strength is not None:
        return base.but(limit=ShrunkWeights(strength=strength))
    return least_error_of_limits(base, [ShrunkWeights(strength=limit) for limit in candidates])
