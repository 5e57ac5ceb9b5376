"""The natural policy gradient: the steepest ascent in the space of policies, not of their parameters."""

from polopt.algorithm import Algorithm
from polopt.credit import GAE, WhitenedAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, Surrogate, ValueLoss
from polopt.rewards import EnvironmentReward
from polopt.sampling import Fragments
from polopt.solvers import ConjugateGradient
from polopt.updates import NaturalGradient


@method(
    paper=Paper(
        title="A Natural Policy Gradient",
        authors="Kakade, Sham",
        year=2001,
        venue="Advances in Neural Information Processing Systems 14",
    ),
    changes="The gradient is multiplied with the inverse Fisher information of the decisions.",
    room="updates",
    tier="proven",
)
def npg(
    *,
    radius: float | None = None,
    damping: float = 1e-3,
    iterations: int = 20,
    steps: int = 128,
    gamma: float = 0.99,
    lam: float = 0.97,
) -> Algorithm:
    """With g the policy gradient and F = mean_t E_a [ score score^T ] the Fisher information of the batch's decisions,

        theta_next = theta + lr d,   (F + damping) d = g

    radius: a divergence in nats that sets the step's length in the place of lr, as in Rajeswaran et al. 2017
    (arXiv:1703.02660); None takes the recipe's lr. damping, iterations: of the conjugate gradient. steps: decisions in
    a fragment. gamma, lam: of the advantages, which are whitened.

    The critic learns by AdamW, with the same lr where radius is None, on the stage's minibatches and in all of its
    epochs; the paper has none.
    """
    return Algorithm(
        sampling=Fragments(steps=steps),
        reward=EnvironmentReward(),
        credit=WhitenedAdvantage(credit=GAE(gamma=gamma, lam=lam)),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), regularise=[ValueLoss(coefficient=0.5, clip=None)]),
        update=NaturalGradient(
            radius=radius, solver=ConjugateGradient(iterations=iterations, damping=damping), search=None
        ),
    )
