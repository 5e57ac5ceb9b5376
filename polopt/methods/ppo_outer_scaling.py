"""PPO whose minibatches keep their size, so that more copies of the environment mean more of them."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo


@method(
    paper=Paper(
        title="Preventing Learning Stagnation in PPO by Scaling to 1 Million Parallel Environments",
        authors="Beukman, Michael and Khetarpal, Khimya and Zheng, Zeyu and Dabney, Will and Foerster, Jakob and "
        "Dennis, Michael and Lyle, Clare",
        year=2026,
        arxiv="2603.06009",
    ),
    changes="The size of a minibatch is kept, and their number grows with the copies of the environment.",
    room="objectives",
    tier="reading",
)
def ppo_outer_scaling(
    *,
    minibatch: int = 256,
    clip: float = 0.2,
    gamma: float = 0.99,
    lam: float = 0.95,
    entropy: float = 0.0,
    steps: int = 128,
) -> Algorithm:
    """A batch and all that is learned from it are one outer step of stochastic optimisation. Its size eta is what
    `clip` allows, and its noise, of variance v, falls with the number N of copies. On a quadratic f of curvature h
    such steps come to rest where

        E f - f_min = eta v / (2 (2 - eta h))

    so that returns come to rest at a higher level with more copies, or a smaller clip. To keep eta, more copies have
    more minibatches of the same size, N steps / minibatch of them, with the same learning rate, epochs and clip: set
    the stage's `rows` to N and leave its `minibatches` out. With a fixed number of these, more copies make them larger
    and the steps too few. minibatch: decisions. clip, gamma, lam, entropy, steps: as in `ppo`.

    The text was at hand as its abstract and summaries of the recipe. `grad_noise` in the log estimates how many
    decisions a batch should have.
    """
    parent = control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps)
    return parent.but(minibatch=minibatch)


def resting_excess(step: float, curvature: float, variance: float) -> float:
    """Returns E f - f_min where the steps x - step (curvature x + noise) on f = curvature x^2 / 2 come to rest: step
    variance / (2 (2 - step curvature)).

    variance: of a step's noise, which falls with the decisions in a batch.

    Raises:
        ValueError: the steps diverge, step curvature >= 2, or a number is not positive.
    """
    if not (step > 0 and curvature > 0 and variance > 0 and step * curvature < 2):
        raise ValueError(
            f"resting_excess: need positive numbers with step * curvature < 2, found {step}, {curvature} and {variance}"
        )
    return step * variance / (2 * (2 - step * curvature))
