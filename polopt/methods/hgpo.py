"""HGPO: each turn is compared with turns of the same state, of the same last two states, and so on."""

from polopt.algorithm import Algorithm
from polopt.credit import RewardToGo, StateRelativeAdvantage
from polopt.method import Paper, method
from polopt.methods.grpo import grpo


@method(
    paper=Paper(
        title="Hierarchy-of-Groups Policy Optimization for Long-Horizon Agentic Tasks",
        authors="He, Shuo and Feng, Lang and Wei, Qi and Cheng, Xin and Feng, Lei and An, Bo",
        year=2026,
        arxiv="2602.22817",
    ),
    changes="GRPO whose turns are compared with those of the same history, at several depths of history at once.",
    room="credit",
    tier="proven",
)
def hgpo(
    *,
    group: int = 8,
    history: int = 2,
    power: float = 1.0,
    gamma: float = 0.95,
    normalise: bool = False,
    base_group: bool = False,
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """For turn h of row i, with G_ih = sum_{u >= h} gamma^(u - h) r_iu over turns and C_n the turns of the group whose
    last n states are the same, n = 1 to history + 1,

        A_ih = sum_n w_n (G_ih - mean_{C_n} G) / sum_n w_n,    w_n = (n + 1)^power

    over the n with other turns in C_n and a difference that is not 0; 0 if there is none. The loss is GRPO's.

    history: the states before the present one that the policy is shown. power: alpha; large for the longest history.
    normalise: whether the deviation of G in C_n divides, by n as in the code. base_group: whether GRPO's advantage
    counts as n = 0, with weight 1.

    Terms of exactly 0 are left out, as in the authors' code, which the paper does not say; with small groups it matters
    much. The weights are the code's, which counts n from 1; whether the paper's begin at 1 or 2 could not be confirmed.
    history = 0 is the second term of GiGPO alone. A state is what was read before the turn, `extras["turn_state"]`;
    actions are not compared.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    return base.but(
        credit=StateRelativeAdvantage(
            returns=RewardToGo(gamma=gamma, unit="turn"),
            depth=history + 1,
            power=power,
            normalise=normalise,
            correction=0,
            base=base.credit if base_group else None,
        )
    )
