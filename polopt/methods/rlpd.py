"""RLPD: SAC from played and logged transitions half and half, with ten normalised critics and many steps of each."""

from typing import Any

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.sac import sac


@method(
    paper=Paper(
        title="Efficient Online Reinforcement Learning with Offline Data",
        authors="Ball, Philip J. and Smith, Laura and Kostrikov, Ilya and Levine, Sergey",
        year=2023,
        arxiv="2302.02948",
    ),
    changes="Half of each batch is logged; ten normalised critics, targets of two; the policy steps once in twenty.",
    room="sampling",
    tier="proven",
)
def rlpd(
    *,
    logged: float = 0.5,
    heads: int = 10,
    target_heads: int = 2,
    updates: int = 20,
    entropy: float | None = None,
    entropy_backup: bool = True,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 5120,
    start: int = 5000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """SAC with, of `heads` critics and a set S of `target_heads` of them that is drawn for each minibatch,

        y = r + gamma (min_(j in S) Q_slow_j(s_next, a_next) - alpha log pi(a_next | s_next))
        L_pi = alpha log pi(a_pi | s) - mean_j Q_j(s, a_pi)

    and a layer norm after each hidden layer of the critics. logged: share of the batch drawn from the recipe's
    `transitions`, the rest is played. updates: minibatches between steps of the policy and of alpha. entropy_backup:
    whether y has its last term. entropy, gamma, tau, start, capacity, steps: as in `sac`. batch: of all minibatches,
    of which a stage should have `updates`: 20 of 256. Half of the batch is logged, of its minibatches on average.
    """
    replay = {"batch": batch, "start": start, "capacity": capacity, "steps": steps}
    parent = sac(gamma=gamma, tau=tau, entropy=entropy, hidden=hidden, **replay)
    changes: dict[str, Any] = {
        "sampling.logged": logged,
        "networks.0.network.heads": heads,
        "networks.0.network.layer_norm": True,
        "networks.0.objective.target.next.heads": target_heads,
        "networks.1.every": updates,
        "objective.over": "mean",
    }
    if not entropy_backup:
        changes["networks.0.objective.target.next.temperature"] = 0.0
    return parent.but(changes, policy_every=updates)
