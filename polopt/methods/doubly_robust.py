"""Doubly robust off-policy evaluation: a model's values, and its errors by importance sampling."""

from typing import Literal

from polopt.method import Paper, method
from polopt.metrics import ActionValueModel, DoublyRobust, TabularValues


@method(
    paper=Paper(
        title="Doubly Robust Off-policy Value Evaluation for Reinforcement Learning",
        authors="Jiang, Nan and Li, Lihong",
        year=2016,
        arxiv="1511.03722",
    ),
    changes="A policy's value from another policy's log: a model's values, whose errors are weighed as by per-decision "
    "importance sampling.",
    room="metrics",
    tier="proven",
)
def doubly_robust(
    *,
    gamma: float = 1.0,
    self_normalised: bool = False,
    model: ActionValueModel | None = None,
    folds: int = 2,
    interval: Literal["t", "normal", "bootstrap"] = "t",
    level: float = 0.95,
) -> DoublyRobust:
    """Value of the target policy pi, estimated from n logged episodes of the behaviour policy b,

        1/n sum_i sum_t gamma^t [w_{0:t} (r_t - q(s_t, a_t)) + w_{0:t-1} v(s_t)],    v(s) = sum_a pi(a | s) q(s, a),

    with w_{0:t} = prod_{k <= t} pi(a_k | s_k) / b(a_k | s_k) and w_{0:-1} = 1, for any q: unbiased for every model,
    and without variance from the actions where the model is exact. q = 0 is per-decision importance sampling.
    self_normalised divides each step's weights by their mean, the weighted doubly robust estimator of Thomas and
    Brunskill (arXiv 1604.00923).

    model: None fits a table by least squares to the log (TabularValues), which needs the columns state and action;
    LoggedValues reads the columns q and v. folds: a fitted model is evaluated on episodes that it was not fitted
    to, one of this many parts of the log at a time, as the paper separates the data of the model and of the estimate.
    """
    return DoublyRobust(
        gamma=gamma,
        self_normalised=self_normalised,
        model=TabularValues() if model is None else model,
        folds=folds,
        interval=interval,
        level=level,
    )
