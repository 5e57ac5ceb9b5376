"""TD3+BC: a deterministic policy that climbs a critic's value near the logged actions."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.td3 import td3
from polopt.objectives import ProposedActionError


@method(
    paper=Paper(
        title="A Minimalist Approach to Offline Reinforcement Learning",
        authors="Fujimoto, Scott and Gu, Shixiang Shane",
        year=2021,
        arxiv="2106.06860",
    ),
    changes="TD3 on logged transitions, with the squared distance from the logged action as a price.",
    room="objectives",
    tier="proven",
)
def td3_bc(
    *,
    alpha: float = 2.5,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 256,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """The policy's loss on logged transitions is

        L_mu = -alpha / mean |Q_1(s, mu(s))| Q_1(s, mu(s)) + |mu(s) - a|^2 / A

    with A the number of an action's dimensions, scaled to [-1, 1], and the mean over the batch without gradient; all
    else is TD3's, without noise on played actions. alpha = 0 would be imitation. gamma, tau, batch: as in `td3`.

    The paper also scales observations by the log's mean and deviation, which is the recipe's `policy.normalise`.
    """
    changes = {"sampling.logged": 1.0, "sampling.start": 0, "sampling.noise": 0.0, "objective.scale": alpha}
    parent = td3(gamma=gamma, tau=tau, batch=batch, hidden=hidden)
    return parent.but(changes, **{"objective.regularise": [ProposedActionError()]})
