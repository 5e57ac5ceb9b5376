"""JuggleRL: a quadrotor that juggles a ball, by PPO, a shaped reward and randomised impacts."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo


@method(
    paper=Paper(
        title="JuggleRL: Mastering Ball Juggling with a Quadrotor via Deep Reinforcement Learning",
        authors="Ji, Shilong and Chen, Yinuo and Wang, Chuqi and Chen, Jiayu and Zhang, Ruize and Gao, Feng and Tang, "
        "Wenhao and Yu, Shu'ang and Xiang, Sirui and Chen, Xinlei and Yu, Chao and Wang, Yu",
        year=2025,
        arxiv="2509.24892",
    ),
    changes="A reward shaped for hits at the racket's centre, of the right height and again and again, and impacts and "
    "starts drawn anew in each episode, so that PPO's policy keeps the ball up where neither is known.",
    room="rewards",
    tier="reading",
)
def jugglerl(
    *, gamma: float = 0.99, lam: float = 0.95, clip: float = 0.2, entropy: float = 0.0, steps: int = 64
) -> Algorithm:
    """PPO in `polopt/Juggling-v0`, whose reward is, at a hit at distance d from the racket's centre after which the
    ball's apex is h, and at every step,

        r_hit = 1 + exp(-(d / 0.1)^2) + exp(-((h - apex) / 0.3)^2)
        r_step = alive - away |x|^2 - tilt |a|^2 - change |u - u_last|^2

    with x the quadrotor's place, a its tilt and u its commands; the coefficient of restitution and the ball's first
    place are drawn in each episode. Advantages are GAE's, delta_t = r_t + gamma V_next - V_t, A_t = delta_t + gamma lam
    A_next, and the objective is the clipped one:

        L = mean_t [ max(-A r, -A clip(r, 1 - clip, 1 + clip)) + 0.5 (V - R)^2 / 2 - entropy H ]

    The settings `shaping`, `restitution`, `spread` and `delay` are the environment's. The recipe `jugglerl` plays a
    tuned mirror law beside it.

    gamma: discount. lam: of GAE. clip: of the ratio. entropy: weight of the bonus. steps: of a fragment.

    Deviations. The paper's text could not be compared beyond its summary: the kinds of terms are the paper's, their
    weights, the constants of the quadrotor and the ranges are ours. It trains with thousands of copies on a GPU, and
    flies the policy, with calibration of a real quadrotor, which is no part of this. Rotation of the racket's surface
    and recoil do not act on the ball.
    """
    return control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps)
