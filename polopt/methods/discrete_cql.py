"""Discrete CQL: values of logged choices, with those of all others pushed down."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.dqn import dqn
from polopt.objectives import ConservativeChoicePenalty


@method(
    paper=Paper(
        title="Conservative Q-Learning for Offline Reinforcement Learning",
        authors="Kumar, Aviral and Zhou, Aurick and Tucker, George and Levine, Sergey",
        year=2020,
        arxiv="2006.04779",
    ),
    changes="Double DQN on logged transitions, with a penalty on the values of choices that were not taken.",
    room="objectives",
    tier="proven",
)
def discrete_cql(
    *,
    alpha: float = 1.0,
    gamma: float = 0.99,
    tau: float = 1.0,
    target_every: int = 2000,
    n_steps: int = 1,
    batch: int = 32,
) -> Algorithm:
    """To DQN's loss, with its double estimator, is added

        alpha (log sum_b exp Q(s, b) - Q(s, a))

    over all choices b, a the logged one. gamma, tau, target_every, n_steps, batch: as in `dqn`. The policy's head must
    be action_values; the log is the recipe's `transitions`.

    The paper's target is that of a quantile network, with alpha 1 for the log of 1 % of the games' transitions.
    """
    parent = dqn(
        gamma=gamma, double=True, n_steps=n_steps, tau=tau, target_every=target_every, explore=0, start=0, batch=batch
    )
    changes = {"sampling.logged": 1.0, "sampling.epsilon": 0.0}
    penalty = ConservativeChoicePenalty(coefficient=alpha)
    return parent.but(changes, **{"objective.regularise": [penalty]})
