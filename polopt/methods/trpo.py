"""TRPO: the natural gradient, as far as the divergence from the old policy is within a bound."""

from polopt.algorithm import Algorithm
from polopt.credit import GAE, WhitenedAdvantage
from polopt.method import Paper, method
from polopt.objectives import Surrogate, Unclipped, ValueLoss
from polopt.rewards import EnvironmentReward
from polopt.sampling import Fragments
from polopt.solvers import ConjugateGradient
from polopt.updates import LineSearch, NaturalGradient


@method(
    paper=Paper(
        title="Trust Region Policy Optimization",
        authors="Schulman, John and others",
        year=2015,
        arxiv="1502.05477",
    ),
    changes="One step a batch along the natural gradient, as long as a bound on the policy's divergence allows.",
    room="updates",
    tier="proven",
)
def trpo(
    *,
    radius: float = 0.01,
    damping: float = 0.1,
    iterations: int = 10,
    shrink: float = 0.5,
    tries: int = 10,
    accept: float = 0.1,
    steps: int = 128,
    gamma: float = 0.99,
    lam: float = 0.97,
) -> Algorithm:
    """With r the ratio to the old policy, A whitened advantages, F the Fisher information of the batch's decisions and
    g the gradient of the mean of r A, which grows while the mean of KL(pi_old || pi) is at most `radius`, the step is

        step = shrink^j sqrt(2 radius / q) x
        (F + damping) x = g
        q = x^T g

    with the least j at which the bound holds and the surrogate improves by `accept` of what its gradient says.
    radius: in nats. damping, iterations: of the conjugate gradient. shrink, tries, accept: of the line search. steps:
    decisions in a fragment. gamma, lam: of the advantages.

    The critic learns by AdamW on the stage's minibatches, in all of its epochs, where the paper fits values by other
    means; GAE and whitening are those of later implementations.
    """
    return Algorithm(
        sampling=Fragments(steps=steps),
        reward=EnvironmentReward(),
        credit=WhitenedAdvantage(credit=GAE(gamma=gamma, lam=lam)),
        objective=Surrogate(trust=Unclipped(), regularise=[ValueLoss(coefficient=0.5, clip=None)]),
        update=NaturalGradient(
            radius=radius,
            solver=ConjugateGradient(iterations=iterations, damping=damping),
            search=LineSearch(shrink=shrink, tries=tries, accept=accept),
        ),
    )
