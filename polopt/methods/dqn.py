"""DQN: values of choices, of which the policy takes the largest, from replayed transitions."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import Backup, HuberError, NetworkRegression, ProposedActionValue
from polopt.rewards import EnvironmentReward
from polopt.sampling import TransitionReplay
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="Human-level control through deep reinforcement learning",
        authors="Mnih, Volodymyr and others",
        year=2015,
        venue="Nature 518, doi:10.1038/nature14236",
    ),
    changes="The policy is a network of the choices' values, regressed on those of an earlier copy.",
    room="objectives",
    tier="proven",
)
def dqn(
    *,
    gamma: float = 0.99,
    double: bool = False,
    n_steps: int = 1,
    tau: float = 1.0,
    target_every: int = 10_000,
    epsilon: float = 0.1,
    explore: int = 250_000,
    batch: int = 32,
    start: int = 50_000,
    capacity: int = 1_000_000,
    steps: int = 4,
) -> Algorithm:
    """With Q_slow the values' copy, and R the discounted sum of the k <= n_steps rewards from a stored transition on,

        L = h(R + gamma^k Q_slow(s_k, a_k) - Q(s, a)),    h(u) = u^2 / 2 within 1, |u| - 1/2 beyond

    without the second term where the episode terminated. a_k is the choice of the largest Q_slow(s_k, .), or, where
    `double`, of the largest Q(s_k, .). gamma: discount. n_steps: 1 in the paper. tau, target_every: in every
    `target_every`-th minibatch Q_slow goes a step `tau` towards Q. epsilon: chance of a random choice after the first
    `explore` batches, over which it falls from 1. batch, start, capacity, steps: as in `sac`.

    The policy's head must be action_values. The paper's optimiser is RMSProp, here it is the stage's. double: van
    Hasselt, Guez and Silver 2015, arXiv 1509.06461; n_steps: Sutton 1988.
    """
    choice = ProposedActionValue(critic="policy", over="first", target_policy=not double)
    falling = Schedule(knots=[(0, 1.0), (explore, epsilon)]) if explore else epsilon
    return Algorithm(
        sampling=TransitionReplay(
            rows=batch, steps=steps, start=start, capacity=capacity, epsilon=falling, n_steps=n_steps, gamma=gamma
        ),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        objective=NetworkRegression(network="policy", target=Backup(gamma=None, next=choice), error=HuberError()),
        policy_target_tau=tau,
        policy_target_every=target_every,
    )
