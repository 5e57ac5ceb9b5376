"""MRDR: a doubly robust estimate whose model is fitted for the estimate's least variance."""

from polopt.method import Paper, method
from polopt.metrics import DoublyRobust, MinimumVarianceValues


@method(
    paper=Paper(
        title="More Robust Doubly Robust Off-policy Evaluation",
        authors="Farajtabar, Mehrdad and Chow, Yinlam and Ghavamzadeh, Mohammad",
        year=2018,
        arxiv="1802.03493",
    ),
    changes="A doubly robust estimate whose model is not the nearest to the returns, but the one that leaves the least "
    "variance.",
    room="metrics",
    tier="reading",
)
def mrdr(
    *,
    gamma: float = 1.0,
    by_step: bool = False,
    self_normalised: bool = False,
    folds: int = 2,
    level: float = 0.95,
) -> DoublyRobust:
    """Value of the target policy, estimated from n logged episodes as by `doubly-robust`, with the model

        theta = argmin Var[sum_t gamma^t (w_{0:t} (r_t - theta(a_t)) + w_{0:t-1} sum_a pi(a | s_t) theta(a))]

    over the episodes of the other folds, with w_{0:t} the product of the probability ratios. The class of models is one
    value for each action (by_step: and step): of a class that holds the true values least squares would find them, too,
    and the choice matters where it does not. Unbiased for every theta.

    self_normalised, folds, level: as in `doubly-robust`.

    The paper minimises an expectation that is this variance up to a constant, with weights from the law of total
    variance; the variance over episodes itself has the same minimum as n grows. The paper's class is a network, whose
    place a part of yours takes: `metrics.DoublyRobust(model=...)`. The formula was not compared with the paper's text.
    """
    model = MinimumVarianceValues(by_step=by_step)
    return DoublyRobust(gamma=gamma, model=model, self_normalised=self_normalised, folds=folds, level=level)
