"""Learn to Follow: agents that plan a path alone, and learn to follow it where others are in the way."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo


@method(
    paper=Paper(
        title="Learn to Follow: Decentralized Lifelong Multi-agent Pathfinding via Planning and Learning",
        authors="Skrynnik, Alexey and Andreychuk, Anton and Nesterova, Maria and Yakovlev, Konstantin and Panov, "
        "Aleksandr",
        year=2023,
        arxiv="2310.01207",
    ),
    changes="Every agent plans its own path, around the centre and where it has seen others, and a shared policy is "
    "rewarded for following it, not for goals.",
    room="rewards",
    tier="faithful",
)
def follow_mapf(
    *, gamma: float = 0.965, lam: float = 0.95, clip: float = 0.1, entropy: float = 0.018, steps: int = 8
) -> Algorithm:
    """PPO in `polopt/PlannedPathfinding-v0`, where each agent plans at every step a path of least cost, in which to
    enter a cell c costs

        static(c) + dynamic(c),    static(c) = max_x d(x) / d(c)

    with d(c) the mean distance from c to the cells that can be reached, and dynamic(c) the steps at which the agent has
    seen another one in c since it got its goal. It sees the obstacles, as -1, and its path, as 1, around it, and the
    other agents. The reward is 0.01 where it has moved to the next cell of the path that it had, else 0.

    Parameters are shared; every agent is a copy of the environment, a row of the batch, and learns from the clipped
    objective, with advantages of GAE, delta_t = r_t + gamma V_next - V_t, A_t = delta_t + gamma lam A_next:

        L = mean_t [ max(-A r, -A clip(r, 1 - clip, 1 + clip)) + 0.5 (V - R)^2 / 2 - entropy H ]

    gamma: discount. lam: of GAE. clip: of the ratio. entropy: weight of the bonus. steps: of a fragment. A stage's
    `rows` are agents, a multiple of the environment's `agents`.

    Deviations. The policy is a perceptron of what the agent sees now; the paper's has convolutions and a recurrent
    layer. Step sizes do not follow the divergence. Where no path leads to a goal the authors' program gives no reward
    and its rewards move to the wrong agents; here goals can be reached. Advantages are whitened.
    """
    return control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps)
