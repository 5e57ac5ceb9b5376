"""Independent importance sampling: off-policy evaluation of slates whose positions do not influence each other."""

from typing import Literal

from polopt.method import Paper, method
from polopt.metrics import IndependentImportanceSampling


@method(
    paper=Paper(
        title="Offline Evaluation of Ranking Policies with Click Models",
        authors="Li, Shuai and Abbasi-Yadkori, Yasin and Kveton, Branislav and Muthukrishnan, S. and Vinay, Vishwa and "
        "Wen, Zheng",
        year=2018,
        arxiv="1804.10488",
    ),
    changes="A ranking policy's value from another one's log: each position's reward weighed by the probability ratio "
    "of its own item.",
    room="metrics",
    tier="proven",
)
def iips(
    *,
    self_normalised: bool = False,
    interval: Literal["t", "normal", "bootstrap"] = "t",
    level: float = 0.95,
) -> IndependentImportanceSampling:
    """Value of the target policy pi, estimated from n logged slates of L positions, one row for each,

        1/n sum_i sum_l rho_l r_l,    rho_l = pi_l(a_l | x) / b_l(a_l | x),

    with pi_l(a | x) the probability of item a at position l over all slates that pi shows in the context x: an episode
    is a slate, a step its position. Unbiased where the reward of a position depends on the context and its own item
    alone. Where it also depends on the items above, `pdis` with probabilities given those items is unbiased; where it
    depends on the whole slate, `wis` without self-normalisation is, whose weights vary most.

    self_normalised divides each position's weights by their mean.

    The paper calls it the item-position model's estimator, and limits the weights; `metrics.ClippedWeights` does that.
    """
    return IndependentImportanceSampling(self_normalised=self_normalised, interval=interval, level=level)
