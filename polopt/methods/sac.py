"""SAC: a policy that climbs a critic's value and keeps its entropy, from replayed transitions."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.networks import LearnedNetwork, Temperature, critic
from polopt.objectives import ProposedActionValue, SquaredError, TemperatureLoss, ValueAscent
from polopt.rewards import EnvironmentReward
from polopt.sampling import TransitionReplay


@method(
    paper=Paper(
        title="Soft Actor-Critic Algorithms and Applications",
        authors="Haarnoja, Tuomas and others",
        year=2018,
        arxiv="1812.05905",
    ),
    changes="The policy climbs the smaller of two critics' values plus its entropy, whose price is learned.",
    room="objectives",
    tier="faithful",
)
def sac(
    *,
    gamma: float = 0.99,
    tau: float = 0.005,
    entropy: float | None = None,
    temperature: float = 1.0,
    batch: int = 256,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With a_next, a_pi actions of the policy at s_next and s, and Q_slow the critics' averages,

        L_Q = sum_j (Q_j(s, a) - r - gamma (min_i Q_slow_i(s_next, a_next) - alpha log pi(a_next | s_next)))^2 / 2
        L_pi = alpha log pi(a_pi | s) - min_j Q_j(s, a_pi)
        L_alpha = -log alpha (log pi(a_pi | s) + H)

    without the term in gamma where the episode terminated. gamma: discount. tau: the averages' step. entropy: H in
    nats, of actions scaled to [-1, 1]; None is minus their number of dimensions. temperature: alpha at the beginning.
    batch: transitions, divided among a stage's minibatches. start: random actions before the first batch. steps: of
    each environment between batches.

    The loss in log alpha is that of the authors' program; the paper's is in alpha. With batch = 256 n and n minibatches
    there are n steps of the optimiser on 256 transitions each, where the paper alternates single ones with the world's.
    """
    value, half = ProposedActionValue(temperature="temperature"), SquaredError(coefficient=0.5)
    alpha, price = Temperature(initial=temperature), TemperatureLoss(target=entropy)
    return Algorithm(
        sampling=TransitionReplay(rows=batch, steps=steps, start=start, capacity=capacity),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        networks=[
            critic(value, gamma=gamma, tau=tau, hidden=hidden, error=half),
            LearnedNetwork(name="temperature", network=alpha, objective=price),
        ],
        objective=ValueAscent(temperature="temperature"),
    )
