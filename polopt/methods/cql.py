"""CQL: a soft critic of logged transitions whose values of other actions are pushed down."""

from typing import Any

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.sac import sac
from polopt.networks import LearnedNetwork, Temperature
from polopt.objectives import ConservativePenalty, ConservativePrice


@method(
    paper=Paper(
        title="Conservative Q-Learning for Offline Reinforcement Learning",
        authors="Kumar, Aviral and Zhou, Aurick and Tucker, George and Levine, Sergey",
        year=2020,
        arxiv="2006.04779",
    ),
    changes="SAC on logged transitions, with a penalty on the values of actions that the log does not hold.",
    room="objectives",
    tier="proven",
)
def cql(
    *,
    alpha: float = 5.0,
    threshold: float | None = None,
    samples: int = 10,
    entropy_backup: bool = False,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 256,
    hidden: tuple[int, ...] = (256, 256, 256),
) -> Algorithm:
    """To SAC's loss of each critic is added

        penalty = alpha price (logsumexp_i (Q(s, a_i) - log q_i(a_i)) - Q(s, a))

    with `samples` actions a_i each of the uniform law, of the policy at s and of the policy at s_next, and q_i their
    densities. price is 1, or, where there is a threshold, learned by dual descent on -price alpha (gap - threshold),
    gap the bracket. entropy_backup: whether the target has SAC's entropy. gamma, tau, batch: as in `sac`. The log is
    the recipe's `transitions`; of choices, see `discrete-cql`.

    Policy and critics have one step size here, the paper's are 3e-5 and 3e-4; its squared error has no half.
    """
    price = None if threshold is None else "price"
    penalty = ConservativePenalty(coefficient=alpha, samples=samples, price=price)
    parent = sac(gamma=gamma, tau=tau, batch=batch, start=0, hidden=hidden)
    changes: dict[str, Any] = {"sampling.logged": 1.0, "networks.0.objective.regularise": [penalty]}
    if not entropy_backup:
        changes["networks.0.objective.target.next.temperature"] = 0.0
    if threshold is not None:
        objective = ConservativePrice(penalty=penalty.but(price=None), threshold=threshold)
        learned = LearnedNetwork(name="price", network=Temperature(), objective=objective)
        changes["networks"] = [*parent.networks, learned]
        changes = {"networks": changes.pop("networks"), **changes}
    return parent.but(changes)
