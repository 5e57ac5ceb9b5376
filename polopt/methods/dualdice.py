"""DualDICE: off-policy evaluation by the ratio of discounted visits, without products over time."""

from polopt.method import Paper, method
from polopt.metrics import StationaryImportanceSampling


@method(
    paper=Paper(
        title="DualDICE: Behavior-Agnostic Estimation of Discounted Stationary Distribution Corrections",
        authors="Nachum, Ofir and Chow, Yinlam and Dai, Bo and Li, Lihong",
        year=2019,
        arxiv="1906.04733",
    ),
    changes="A policy's value from another policy's log: each reward weighed by how much oftener its state and action "
    "are visited, whatever the step.",
    room="metrics",
    tier="reading",
)
def dualdice(
    *, gamma: float = 0.99, endless: bool = True, resamples: int = 200, level: float = 0.95
) -> StationaryImportanceSampling:
    """Value of the target policy pi, estimated from n logged episodes of another policy,

        1/n sum_i sum_t zeta(s_t, a_t) r_t

    with zeta the ratio of the visits that pi discounts by gamma to the logged visits: the saddle point of

        min_nu max_zeta sum_i sum_t zeta(s_t, a_t) [nu(s_t, a_t) - gamma nu(s_{t+1}, pi)] - sum_i nu(s_i0, pi)

    with nu(s, pi) = sum_a pi(a | s) nu(s, a). It needs the columns `state` and `action`, a state that holds all that
    the future depends on, and every action of the target policy in the log; the behaviour policy's probabilities do not
    enter, and may be of a mixture of policies.

    endless: episodes are cut, not ended: the last decision of each is left out, and the value is that of going on for
    ever. resamples, level: of the bootstrap over episodes, with the ratios fitted anew each time.

    The paper trains two networks, with a convex function of zeta in the place of the linear one; for a table of states
    and actions the saddle point is solved exactly, and does not depend on that function. The
    formula was not compared with the paper's text.
    """
    return StationaryImportanceSampling(gamma=gamma, endless=endless, resamples=resamples, level=level)
