"""INPO: mirror descent against the previous policy, regularised towards the reference."""

from polopt.method import Paper, method
from polopt.solvers import Opponent, PreferenceMirrorDescent, StepSize


@method(
    paper=Paper(
        title="Iterative Nash Policy Optimization: Aligning LLMs with General Preferences via No-Regret Learning",
        authors="Zhang, Yuheng and Yu, Dian and Peng, Baolin and others",
        year=2024,
        arxiv="2407.00617",
    ),
    changes="Mirror descent of the win rate against the previous policy, regularised: no bias of a constant step size.",
    room="solvers",
    tier="proven",
)
def inpo(*, eta: float = 1.0) -> PreferenceMirrorDescent:
    """From pi = mu, with tau and the reference mu of the game,

        pi'(y) ~ mu(y)^(tau / eta) pi(y)^(1 - tau / eta) exp(P(y > pi) / eta)

    which minimises over pi' the population loss over pairs y, y' of pi,

        (log pi'(y) / pi'(y') - tau / eta log mu(y) / mu(y') - (1 - tau / eta) log pi(y) / pi(y')
            - (P(y > pi) - P(y' > pi)) / eta)^2

    eta: the inverse of the step size, at least tau. eta = tau forgets the previous policy; tau = 0 has no reference.

    This is the exact solver for answers in a table, for one prompt. In training the paper replaces the win rates by the
    label of the pair, 1 / (2 eta) for the preferred answer, which has the same minimiser. eta = 1 is ours: for language
    models the paper takes eta of 0.005 to 0.0075 and tau = eta / 3. Against Nash-MD, of which it differs by the
    opponent alone, a constant eta leaves no distance to the equilibrium.
    """
    if eta <= 0:
        raise ValueError(f"inpo: eta, the inverse of the step size, must be positive, found {eta:g}")
    return PreferenceMirrorDescent(step_size=StepSize(lr=1 / eta), opponent=Opponent())
