"""NLHF: the Nash equilibrium of a regularised preference game, by Nash-MD or Nash-EMA."""

from typing import Literal

from polopt.method import Paper, method
from polopt.solvers import AveragedOpponent, HarmonicStepSize, OwnMixture, PreferenceMirrorDescent, StepSize


@method(
    paper=Paper(
        title="Nash Learning from Human Feedback",
        authors="Munos, Remi and Valko, Michal and Calandriello, Daniele and others",
        year=2023,
        arxiv="2312.00886",
    ),
    changes="Mirror descent against the own policy mixed with the reference, whose last policy nears the equilibrium.",
    room="solvers",
    tier="proven",
)
def nlhf(
    *,
    lr: float = 0.1,
    opponent: Literal["mixture", "average"] = "mixture",
    decay: float = 0.9,
    decreasing: bool = False,
) -> PreferenceMirrorDescent:
    """The equilibrium of P_tau(pi > pi') = P(pi > pi') - tau KL(pi | mu) + tau KL(pi' | mu), from pi = mu, by

        mix(y) ~ pi(y)^(1 - lr tau) mu(y)^(lr tau),    pi(y) <- mix(y) exp(lr P(y > mix))

    both normalised. With pi* the equilibrium, KL(pi* | pi) <= (1 - lr tau) KL(pi* | pi_before) + 2 lr^2 at every step.

    lr: the step size; constant, it leaves a distance in proportion to lr, as mix is not pi.
    opponent: Nash-MD plays against mix, Nash-EMA ("average") against the policy of moving averages of the logits.
    decay: of these averages.
    decreasing: the step size is 2 / (tau (t + 1)) in iteration t, at most lr; take lr = 1 / tau.

    This is the exact solver for answers in a table, for one prompt. The paper's other part, which trains language
    models by a policy gradient against a mixture that is computed token by token, is `nash-md`. Defaults are ours: the
    paper gives lr by the number of iterations. Nash-EMA is a heuristic of the paper, without a guarantee; its averages
    are of a network's parameters, here of a table of logits.
    """
    return PreferenceMirrorDescent(
        step_size=HarmonicStepSize(lr=lr) if decreasing else StepSize(lr=lr),
        opponent=OwnMixture() if opponent == "mixture" else AveragedOpponent(decay=decay),
    )
