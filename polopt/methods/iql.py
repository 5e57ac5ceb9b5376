"""IQL: values of logged actions alone, by expectiles, and a policy that imitates the better ones."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.networks import LearnedNetwork, ValueNetwork, critic
from polopt.objectives import (
    ExpectileError,
    LoggedActionValue,
    NetworkAdvantageWeight,
    NetworkNextValue,
    NetworkRegression,
    PolicyGradient,
    Surrogate,
)
from polopt.rewards import EnvironmentReward
from polopt.sampling import TransitionReplay


@method(
    paper=Paper(
        title="Offline Reinforcement Learning with Implicit Q-Learning",
        authors="Kostrikov, Ilya and Nair, Ashvin and Levine, Sergey",
        year=2021,
        arxiv="2110.06169",
    ),
    changes="No value of an action that was not logged: an expectile of the logged ones stands for the best.",
    room="objectives",
    tier="proven",
)
def iql(
    *,
    expectile: float = 0.7,
    beta: float = 3.0,
    cap: float = 100.0,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 256,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With u = min_j Q_slow_j(s, a) - V(s), over logged transitions,

        L_V = |expectile - 1[u < 0]| u^2
        L_Q = sum_j (r + gamma V(s_next) - Q_j(s, a))^2
        L_pi = -min(exp(beta u), cap) log pi(a | s)

    without gamma V(s_next) where the episode terminated. gamma: discount. tau: the step of Q_slow. batch: as in `sac`.
    beta = 0 is imitation; expectile = 1/2 values the logging policy. The log is the recipe's `transitions`.
    """
    loss = NetworkRegression(network="value", target=LoggedActionValue(), error=ExpectileError(expectile=expectile))
    return Algorithm(
        sampling=TransitionReplay(rows=batch, logged=1.0),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        networks=[
            LearnedNetwork(name="value", network=ValueNetwork(hidden=hidden), objective=loss),
            critic(NetworkNextValue(), gamma=gamma, tau=tau, hidden=hidden),
        ],
        objective=Surrogate(ratio=None, trust=PolicyGradient(), weights=[NetworkAdvantageWeight(beta=beta, cap=cap)]),
    )
