"""TD3: a deterministic policy that climbs a critic's value, every second step."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.networks import critic
from polopt.objectives import ProposedActionValue, ValueAscent
from polopt.rewards import EnvironmentReward
from polopt.sampling import TransitionReplay


@method(
    paper=Paper(
        title="Addressing Function Approximation Error in Actor-Critic Methods",
        authors="Fujimoto, Scott and van Hoof, Herke and Meger, David",
        year=2018,
        arxiv="1802.09477",
    ),
    changes="The smaller of two critics' values at a noisy action of an averaged policy, and a policy that waits.",
    room="objectives",
    tier="faithful",
)
def td3(
    *,
    gamma: float = 0.99,
    tau: float = 0.005,
    smoothing: float = 0.2,
    smoothing_clip: float = 0.5,
    delay: int = 2,
    noise: float = 0.1,
    batch: int = 256,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With a_next = mu_slow(s_next) + e, e Gaussian of standard deviation `smoothing` within +-smoothing_clip,

        y = r + gamma min_j Q_slow_j(s_next, a_next)
        L_Q = sum_j (Q_j(s, a) - y)^2
        L_mu = -Q_1(s, mu(s))

    y without its second term where the episode terminated; actions scaled to [-1, 1]. Policy and averages take a step
    in every `delay`-th minibatch. gamma: discount. tau: the averages' step. noise: standard deviation of the Gaussian
    noise on the actions that are played. batch, start, capacity, steps: as in `sac`.

    The policy's head must be deterministic. delay = 1, smoothing = 0 and one critic head make it DDPG, arXiv
    1509.02971.
    """
    value = ProposedActionValue(target_policy=True, noise=smoothing, noise_clip=smoothing_clip)
    return Algorithm(
        sampling=TransitionReplay(rows=batch, steps=steps, start=start, capacity=capacity, noise=noise),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        networks=[critic(value, gamma=gamma, tau=tau, hidden=hidden, every=delay)],
        objective=ValueAscent(over="first"),
        policy_every=delay,
        policy_target_tau=tau,
    )
