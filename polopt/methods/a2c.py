"""A2C: one step of a policy and its critic on each short fragment of many environments."""

from polopt.algorithm import Algorithm
from polopt.credit import GAE
from polopt.method import Paper, method
from polopt.objectives import EntropyBonus, PolicyGradient, Regulariser, Surrogate, ValueLoss
from polopt.rewards import EnvironmentReward
from polopt.sampling import Fragments
from polopt.updates import RMSprop


@method(
    paper=Paper(
        title="Asynchronous Methods for Deep Reinforcement Learning",
        authors="Mnih, Volodymyr and others",
        year=2016,
        arxiv="1602.01783",
    ),
    changes="Advantages over a few steps, from a critic; one step on each batch, by RMSprop.",
    room="updates",
    tier="faithful",
)
def a2c(
    *,
    steps: int = 5,
    gamma: float = 0.99,
    lam: float = 1.0,
    value: float = 0.5,
    entropy: float = 0.01,
    decay: float = 0.99,
    eps: float = 1e-5,
) -> Algorithm:
    """With A_t the return of the fragment from t on, and the critic's value after it, less V(s_t),

        L = mean_t [ -A_t log pi(a_t | s_t) + value (V(s_t) - R_t)^2 - entropy H_t ],     R_t = A_t + V_old(s_t)

    steps: decisions in a fragment. gamma: discount. lam: of the advantages, 1 in the paper (`credit.GAE`).
    value, entropy: coefficients. decay, eps: of RMSprop.

    The paper's asynchronous workers are copies of the environment here, whose gradients are averaged; its entropy of
    0.01 is that of choices. Settings of a stage: epochs and minibatches 1, optimiser: {lr: 0.0007, clip: 0.5}.
    """
    extra: list[Regulariser] = [ValueLoss(coefficient=2 * value, clip=None)]
    return Algorithm(
        sampling=Fragments(steps=steps),
        reward=EnvironmentReward(),
        credit=GAE(gamma=gamma, lam=lam),
        objective=Surrogate(
            ratio=None,
            trust=PolicyGradient(),
            regularise=[*extra, EntropyBonus(coefficient=entropy)] if entropy else extra,
        ),
        update=RMSprop(decay=decay, eps=eps),
    )
