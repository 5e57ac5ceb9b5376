"""Marginalised importance sampling: off-policy evaluation whose variance does not grow with every decision's ratio."""

from polopt.method import Paper, method
from polopt.metrics import MarginalImportanceSampling


@method(
    paper=Paper(
        title="Towards Optimal Off-Policy Evaluation for Reinforcement Learning with Marginalized Importance Sampling",
        authors="Xie, Tengyang and Ma, Yifei and Wang, Yu-Xiang",
        year=2019,
        arxiv="1906.03393",
    ),
    changes="A policy's value from another policy's log: each reward weighed by how much likelier its state and action "
    "are, not by the product of all ratios before it.",
    room="metrics",
    tier="proven",
)
def mis(*, gamma: float = 1.0, self_normalised: bool = False, level: float = 0.95) -> MarginalImportanceSampling:
    """Value of the target policy pi, estimated from n logged episodes of the behaviour policy b,

        1/n sum_i sum_t gamma^t m_t(s_t) rho_t r_t,    rho_t = pi(a_t | s_t) / b(a_t | s_t),

    with m_t(s) the estimated ratio of the probabilities of being in s at step t: m_0 = 1, and m_{t+1}(s') the mean of
    m_t(s_t) rho_t over the episodes that are in s' at step t + 1. It needs the column `state`, which must hold all that
    the future depends on; states in which few episodes meet make it per-decision importance sampling again.

    self_normalised divides each step's weights by their mean. The interval is the percentile bootstrap over episodes,
    with the ratios fitted anew each time.

    The paper's m_t comes from estimated transition probabilities of the target policy, which for states in a table is
    the same mean.
    """
    return MarginalImportanceSampling(gamma=gamma, self_normalised=self_normalised, level=level)
