"""Per-decision importance sampling: off-policy evaluation from logged episodes."""

from typing import Literal

from polopt.method import Paper, method
from polopt.metrics import PerDecisionImportanceSampling

PAPER = Paper(
    title="Eligibility Traces for Off-Policy Policy Evaluation",
    authors="Precup, Doina and Sutton, Richard S. and Singh, Satinder",
    year=2000,
    venue="ICML 2000",
)


@method(
    paper=PAPER,
    changes="A policy's value from another policy's log: each reward weighed by the probability ratios of the "
    "decisions before it.",
    room="metrics",
    tier="proven",
)
def pdis(
    *,
    gamma: float = 1.0,
    self_normalised: bool = False,
    interval: Literal["t", "normal", "bootstrap"] = "t",
    level: float = 0.95,
) -> PerDecisionImportanceSampling:
    """Value of the target policy pi, estimated from n logged episodes of the behaviour policy b,

        1/n sum_i sum_t gamma^t w_{0:t} r_t,    w_{0:t} = prod_{k <= t} pi(a_k | s_k) / b(a_k | s_k),

    which is unbiased where b takes every action that pi takes. A weight includes no later decision, so that its
    variance is smaller than the whole episode's. self_normalised divides each step's weights by their own mean:
    consistent, a little biased, less variable. An episode that has ended keeps its last weight, as in an absorbing
    state where both policies are equal. The interval is over episodes: Student's t of their terms, a normal one or the
    bias-corrected bootstrap.

    The paper writes it for the value of a state and an action, whose own ratio is then left out.
    """
    return PerDecisionImportanceSampling(gamma=gamma, self_normalised=self_normalised, interval=interval, level=level)
