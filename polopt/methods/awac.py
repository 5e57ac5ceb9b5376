"""AWAC: imitation of logged actions by the exponential of their advantage over the policy's own."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.networks import critic
from polopt.objectives import NetworkAdvantageWeight, PolicyGradient, ProposedActionValue, Surrogate
from polopt.rewards import EnvironmentReward
from polopt.sampling import TransitionReplay


@method(
    paper=Paper(
        title="AWAC: Accelerating Online Reinforcement Learning with Offline Datasets",
        authors="Nair, Ashvin and Gupta, Abhishek and Dalal, Murtaza and Levine, Sergey",
        year=2020,
        arxiv="2006.09359",
    ),
    changes="The policy's likelihood of a stored action, weighed by how much better it is than the policy's own.",
    room="objectives",
    tier="proven",
)
def awac(
    *,
    temperature: float = 1.0,
    cap: float = 100.0,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 256,
    logged: float = 1.0,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With a_next, a_pi actions of the policy at s_next and s, over stored transitions,

        L_Q = sum_j (r + gamma min_i Q_slow_i(s_next, a_next) - Q_j(s, a))^2
        u = min_j Q_slow_j(s, a) - min_j Q_slow_j(s, a_pi)
        L_pi = -min(exp(u / temperature), cap) log pi(a | s)

    without the second term of the target where the episode terminated. gamma: discount. tau: the step of Q_slow.
    logged: share of the batch that is drawn from the recipe's `transitions`; the rest is played. batch: as in `sac`.

    The paper normalises the weights by their sum over the batch in one of its programs; here they have a cap, as in
    the later ones.
    """
    weight = NetworkAdvantageWeight(value=None, beta=1 / temperature, cap=cap)
    return Algorithm(
        sampling=TransitionReplay(rows=batch, logged=logged),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        networks=[critic(ProposedActionValue(), gamma=gamma, tau=tau, hidden=hidden)],
        objective=Surrogate(ratio=None, trust=PolicyGradient(), weights=[weight]),
    )
