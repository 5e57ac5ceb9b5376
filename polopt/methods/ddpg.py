"""DDPG: a deterministic policy that climbs the value of one critic."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.td3 import td3


@method(
    paper=Paper(
        title="Continuous control with deep reinforcement learning",
        authors="Lillicrap, Timothy P. and others",
        year=2015,
        arxiv="1509.02971",
    ),
    changes="A deterministic policy climbs a critic, both with slowly following copies for the targets.",
    room="objectives",
    tier="proven",
)
def ddpg(
    *,
    gamma: float = 0.99,
    tau: float = 0.001,
    noise: float = 0.2,
    batch: int = 64,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (400, 300),
) -> Algorithm:
    """With averages mu_slow and Q_slow of policy and critic,

        L_Q = (Q(s, a) - r - gamma Q_slow(s_next, mu_slow(s_next)))^2
        L_mu = -Q(s, mu(s))

    without the term in gamma where the episode terminated; actions scaled to [-1, 1]. gamma: discount. tau: the
    averages' step. noise: standard deviation of the noise on played actions. batch, start, capacity, steps: as in
    `sac`.

    The policy's head must be deterministic. The noise is Gaussian and independent, the paper's an Ornstein-Uhlenbeck
    process of standard deviation 0.2 a step; the critic reads the action in its first layer, in the paper in its
    second; and its weights do not decay.
    """
    settings = {"gamma": gamma, "tau": tau, "smoothing": 0.0, "noise": noise}
    parent = td3(**settings, delay=1, batch=batch, start=start, capacity=capacity, steps=steps, hidden=hidden)
    return parent.but({"networks.0.network.heads": 1})
