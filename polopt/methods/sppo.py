"""SPPO: multiplicative weights on the win rate against the previous policy."""

from polopt.method import Paper, method
from polopt.solvers import Opponent, PreferenceMirrorDescent, StepSize


@method(
    paper=Paper(
        title="Self-Play Preference Optimization for Language Model Alignment",
        authors="Wu, Yue and Sun, Zhiqing and Yuan, Huizhuo and others",
        year=2024,
        arxiv="2405.00675",
    ),
    changes="Multiplicative weights in self-play, one regression on win rates at a time, without a reference.",
    room="solvers",
    tier="faithful",
)
def sppo(*, eta: float = 0.1) -> PreferenceMirrorDescent:
    """From pi = mu, pi'(y) ~ pi(y) exp(eta P(y > pi)), which is, with Z the sum that normalises it,

        log pi'(y) / pi(y) = eta P(y > pi) - log Z,    log Z ~ eta / 2

    The right one is the target of the paper's square loss over answers of pi: 1/2 is the mean of P(y > pi), so that the
    error of log Z is of second order in eta.

    eta: the step size.

    This is the exact solver for answers in a table, for one prompt, with the last policy as its solution, as the paper
    deploys it. Its theorem is on the mean of all policies, which approaches the equilibrium of the game without
    regularisation; the last one circles it where preferences are not transitive. eta = 0.1 is ours: the paper takes
    1000 on language models, with win rates from five answers, and never trains to convergence. The game's tau is not
    used.
    """
    return PreferenceMirrorDescent(step_size=StepSize(lr=eta), regularised=False, opponent=Opponent())
