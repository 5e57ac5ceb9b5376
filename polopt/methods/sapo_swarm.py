"""SAPO: decentralised learners that share rollouts, and nothing else."""

from polopt.algorithm import Algorithm
from polopt.backends import FolderPool, LocalPool
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import Swarm


@method(
    paper=Paper(
        title="Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing",
        authors="Amico, Jeffrey and Andrade, Gabriel Passamani and Donaghy, John and Fielding, Ben and Forbus, Tristin "
        "and others",
        year=2025,
        arxiv="2509.08721",
    ),
    changes="GRPO on groups of one's own and groups that other learners published, re-encoded and paid by one's own "
    "world.",
    room="sampling",
    tier="faithful",
)
def sapo_swarm(
    *,
    group: int = 8,
    external: float = 0.5,
    node: str = "node",
    pool: str = "",
    newest: int = 4,
    correct: bool = False,
    low: float = 0.2,
    high: float = 0.28,
) -> Algorithm:
    """Loss of a node that samples groups of answers, publishes text, task and reward, and learns from I groups of its
    own and J that it draws uniformly from the latest ones of others; `external` is J / (I + J), 4 / 8 in the paper's
    best run. The node tokenises their text itself, computes the reward in its own environment, and skips groups of
    equal rewards. Then

        L = mean_i (1/|y_i|) sum_t max(-A_i r_it, -A_i clip(r_it, 1 - low, 1 + high)),    r = pi / pi_old,

    with A GRPO's z-score in the group and pi_old the node's own policy before the update, for others' text too: the
    paper learns from it as if it were the node's own. That is biased towards the policy that sampled it; correct=True
    publishes tokens and log-probabilities and takes r to that policy instead, for nodes of one tokenizer.

    pool: a folder that all nodes see, or "" for one inside this process; node: this one's name in it. A node alone is
    GRPO. Nodes share where they have common tasks: a task is identified by its number and name. How often a node skips
    groups without contrast, and from how far back it draws, the paper leaves to the node; `newest` batches of each are
    ours. It has no KL term. Another method is also called SAPO: soft adaptive policy optimisation.
    """
    place = FolderPool(path=pool) if pool else LocalPool()
    sampling = Swarm(group=group, share=external, node=node, pool=place, newest=newest, correct=correct)
    return grpo(group=group, clip=low, kl=0).but({"sampling": sampling, "objective.trust.high": high})
