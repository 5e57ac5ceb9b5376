"""NDP: PPO whose policy decides on the goal and shape of a movement, and plays some of its points."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo
from polopt.networks import MovementPrimitive


@method(
    paper=Paper(
        title="Neural Dynamic Policies for End-to-End Sensorimotor Learning",
        authors="Bahl, Shikhar and Mukadam, Mustafa and Gupta, Abhinav and Pathak, Deepak",
        year=2020,
        arxiv="2012.02788",
    ),
    changes="The policy's last layer is a dynamical system: a movement from the present state to a goal.",
    room="objectives",
    tier="proven",
)
def ndp(
    *,
    position: tuple[int, ...] = (0,),
    velocity: tuple[int, ...] = (),
    actions: int = 5,
    output: Literal["position", "displacement", "velocity"] = "displacement",
    basis: int = 3,
    integration: int = 35,
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.1,
    entropy: float = 0.0,
    steps: int = 128,
) -> Algorithm:
    """A network sets a goal g and weights w of each coordinate, whose movement begins at its present position y_0:

        ddy = a_z (a_z / 4 (g - y) - dy) + f
        f = x (g - y_0) sum_n w_n psi_n(x) / sum_n psi_n(x)
        dx = -a_x x

    A decision is `actions` of its points, with normal noise on each, which are played one after the other; PPO learns
    from decisions with the discount gamma^actions. Set the recipe's environment.chunk to `actions`. position, velocity,
    output, basis: as in `networks.MovementPrimitive`. integration: Euler's steps, a multiple of `actions`. gamma: of a
    step of the environment. lam, clip, entropy: as in `ppo`. steps: decisions of a fragment.

    The same policy imitates: `bc(loss="likelihood").but(trunk=networks.MovementPrimitive(...))`.

    Deviations. The reward of a decision is the plain sum of its steps'. The critic has one value for a decision, where
    the paper's has one for each of its steps. The authors' program multiplies g by 100, too, as its network's
    last layer is small at first; here w is multiplied alone. A learned a_z is left out.
    """
    movement = MovementPrimitive(
        position=position, velocity=velocity, actions=actions, output=output, basis=basis, steps=integration
    )
    parent = control_ppo(gamma=gamma**actions, lam=lam, clip=clip, entropy=entropy, steps=steps)
    return parent.but(trunk=movement)
