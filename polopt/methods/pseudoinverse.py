"""The pseudo-inverse estimator: off-policy evaluation of slates from one reward for the whole slate."""

from typing import Literal

from polopt.method import Paper, method
from polopt.metrics import PseudoInverse


@method(
    paper=Paper(
        title="Off-policy Evaluation for Slate Recommendation",
        authors="Swaminathan, Adith and Krishnamurthy, Akshay and Agarwal, Alekh and Dudik, Miroslav and "
        "Langford, John and Jose, Damien and Zitouni, Imed",
        year=2017,
        arxiv="1605.04812",
    ),
    changes="A slate policy's value from another one's log: the slate's reward weighed by the sum of its positions' "
    "probability ratios, not by their product.",
    room="metrics",
    tier="reading",
)
def pseudoinverse(
    *,
    self_normalised: bool = False,
    interval: Literal["t", "normal", "bootstrap"] = "t",
    level: float = 0.95,
) -> PseudoInverse:
    """Value of the target policy pi, estimated from n logged slates of L positions,

        1/n sum_i (1 - L + sum_l rho_l) G_i,    rho_l = pi_l(a_l | x) / b_l(a_l | x),

    with G the reward of the whole slate (the sum of its rows' rewards) and pi_l(a | x) the probability of item a at
    position l. An episode is a slate, a step its position. Unbiased where the expected reward is a sum of unobserved
    terms of the positions, and the behaviour policy draws the positions independently of each other; its variance grows
    with L, where that of the product of the ratios grows with its L-th power.

    self_normalised divides each position's weights by their mean.

    The paper's weight is q_pi' Gamma^+ 1_s for any behaviour policy, with Gamma the second moments of its slates; for
    independent positions that is the sum above. Slates without repeated items are not drawn so, and are not
    covered. The formula was not compared with the paper's text.
    """
    return PseudoInverse(self_normalised=self_normalised, interval=interval, level=level)
