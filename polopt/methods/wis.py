"""Weighted importance sampling: off-policy evaluation as a weighted mean of logged returns."""

from typing import Literal

from polopt.method import method
from polopt.methods.pdis import PAPER
from polopt.metrics import TrajectoryImportanceSampling


@method(
    paper=PAPER,
    changes="A policy's value from another policy's log: the mean return, weighed by the episodes' probability ratios.",
    room="metrics",
    tier="proven",
)
def wis(
    *,
    gamma: float = 1.0,
    self_normalised: bool = True,
    interval: Literal["t", "normal", "bootstrap"] = "bootstrap",
    level: float = 0.95,
) -> TrajectoryImportanceSampling:
    """Value of the target policy pi, estimated from n logged episodes of the behaviour policy b,

        sum_i w_i G_i / sum_i w_i,    G = sum_t gamma^t r_t,    w = prod_t pi(a_t | s_t) / b(a_t | s_t).

    The weighted mean lies within the range of the logged returns. The estimate is biased, by an amount of order 1/n,
    and consistent where b takes every action that pi takes. self_normalised=False divides by n: ordinary importance
    sampling, unbiased and more variable. The interval is the bias-corrected bootstrap over episodes, Student's t of the
    linearised ratio, or a normal one.
    """
    return TrajectoryImportanceSampling(gamma=gamma, self_normalised=self_normalised, interval=interval, level=level)
