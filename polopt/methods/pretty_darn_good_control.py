"""Pretty darn good control: PPO on the whole model of a fishery, in the place of the optimum of a reduced one."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo


@method(
    paper=Paper(
        title="Pretty Darn Good Control: When are Approximate Solutions Better than Approximate Models",
        authors="Montealegre-Mora, Felipe and Lapeyrolerie, Marcus and Chapman, Melissa and Keller, Abigail G. and "
        "Boettiger, Carl",
        year=2023,
        arxiv="2308.13654",
    ),
    changes="An approximate solution of the whole model of a fishery, by PPO, beside classical rules that were tuned "
    "on it and the exact optimum of a model of one species.",
    room="sampling",
    tier="reading",
)
def pretty_darn_good_control(
    *, gamma: float = 0.99, lam: float = 0.95, clip: float = 0.2, entropy: float = 0.0, steps: int = 100
) -> Algorithm:
    """PPO, from what the harvest of each step yields: with fragments of `steps` steps of each copy, advantages A of GAE

        delta_t = r_t + gamma V_next - V_t,    A_t = delta_t + gamma lam A_next

    that go on from the critic's value where an episode was cut off, and the clipped objective

        L = mean_t [ max(-A r, -A clip(r, 1 - clip, 1 + clip)) + 0.5 (V - R)^2 / 2 - entropy H ]

    The paper's comparison is the recipe `fishery`: its evaluations play the rules of `polopt.worlds.control` on as many
    episodes. Constant mortality, constant escapement and the cautionary rule are tuned in the environment, by a grid;
    `FisheryOptimum` is exact for a fishery of one species, and elsewhere the optimum of that reduced model.

    gamma: discount; returns are reported without it. lam: of GAE. clip: of the ratio. entropy: weight of the bonus.
    steps: of a fragment.

    Deviations. The paper trains with RLlib's defaults, which it does not list; these are the library's own. Its
    environment is never cut off, so that collapse alone ends an episode in training; ours ends after 200 steps, as its
    evaluations do. Its policies are Gaussian; the recipe's is a beta distribution, whose samples stay in [0, 1].
    """
    return control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps)
