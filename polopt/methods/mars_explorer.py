"""MarsExplorer: exploration of unknown terrain as reinforcement learning, by PPO."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo


@method(
    paper=Paper(
        title="MarsExplorer: Exploration of Unknown Terrains via Deep Reinforcement Learning and Procedurally "
        "Generated Environments",
        authors="Koutras, Dimitrios I. and Kapoutsis, Athanasios Ch. and Amanatiadis, Angelos A. and Kosmatopoulos, "
        "Elias B.",
        year=2021,
        arxiv="2107.09996",
    ),
    changes="Exploration of unknown terrain is learned: the reward is what a move shows that was not known, less its "
    "cost, and terrains are drawn anew; PPO learns it best.",
    room="sampling",
    tier="reading",
)
def mars_explorer(
    *, gamma: float = 0.99, lam: float = 1.0, clip: float = 0.3, entropy: float = 0.0, steps: int = 64
) -> Algorithm:
    """PPO in `polopt/Coverage-v0`, whose reward at a move is, with c the cells that are known,

        r = c_next - c - 0.2;    400 instead where the terrain is explored, -400 instead after a collision

    by the clipped objective, with advantages of GAE, delta_t = r_t + gamma V_next - V_t, A_t = delta_t + gamma lam
    A_next:

        L = mean_t [ max(-A r, -A clip(r, 1 - clip, 1 + clip)) + 0.5 (V - R)^2 / 2 - entropy H ]

    with r of L the ratio. gamma: discount. lam: of GAE; clip: of the ratio; both are RLlib's defaults, which the paper
    trains with. entropy: weight of the bonus. steps: of a fragment.

    The recipe `mars-explorer` plays rules that go to the frontier beside it, on as many terrains: the nearest frontier,
    and that of the best balance of information and distance.

    Deviations. RLlib's penalty of the divergence, and its clip of the value loss at 10, are left out. The paper's
    policy is a convolutional network that sees the terrain as it lies; the recipe's is a perceptron, on a smaller
    terrain that is seen from the robot. Episodes that end by time go on from the critic's value.
    """
    return control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps)
