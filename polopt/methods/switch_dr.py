"""SWITCH: a doubly robust estimate that keeps the model's value where an importance weight is large."""

from collections.abc import Sequence

from polopt.method import Paper, method
from polopt.metrics import (
    ActionValueModel,
    DoublyRobust,
    LoggedMetric,
    SwitchedWeights,
    TabularValues,
    least_error_of_limits,
)


@method(
    paper=Paper(
        title="Optimal and Adaptive Off-policy Evaluation in Contextual Bandits",
        authors="Wang, Yu-Xiang and Agarwal, Alekh and Dudik, Miroslav",
        year=2017,
        arxiv="1612.01205",
    ),
    changes="A doubly robust estimate without the corrections whose weights are large, where the model's value stands.",
    room="metrics",
    tier="faithful",
)
def switch_dr(
    *,
    most: float | None = None,
    candidates: Sequence[float] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
    gamma: float = 1.0,
    model: ActionValueModel | None = None,
    folds: int = 2,
    level: float = 0.95,
) -> LoggedMetric:
    """Value of the target policy, estimated from n logged episodes as by `doubly-robust`, with limited weights u:

        1/n sum_i sum_t gamma^t [u_t (r_t - q(s_t, a_t)) + u_{t-1} v(s_t)],    u_t = w_{0:t} 1[w_{0:t} <= most]

    with w_{0:t} the product of the probability ratios and u_{-1} = 1. Once a weight of an episode exceeds `most`, the
    episode's later ones count as 0, too. most -> infinity is `doubly-robust`, and below every weight what remains is
    the model's mean value of the first states.

    most: the largest weight; None chooses among `candidates` and no limit by the least estimated squared error, the
        variance of the mean plus the square of its difference to the unlimited estimate.
    gamma, model, folds, level: as in `doubly-robust`.

    The paper is about decisions of one step; weights of whole beginnings for longer episodes are ours. Its SWITCH uses
    the model on every action whose weight is large and importance sampling on the others; this is its doubly robust
    form, SWITCH-DR. The paper chooses `most` with an upper bound on the bias, from the model's range.
    """
    base = DoublyRobust(gamma=gamma, model=TabularValues() if model is None else model, folds=folds, level=level)
    if most is not None:
        return base.but(limit=SwitchedWeights(most=most))
    return least_error_of_limits(base, [SwitchedWeights(most=limit) for limit in candidates])
