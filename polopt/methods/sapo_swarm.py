"""SAPO: several learners that share their answers, and nothing else."""

import torch

from polopt.algorithm import Algorithm
from polopt.lab.swarm import cumulative, pull_of_shared
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import FolderPool, LocalPool, Swarm


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
    """Every node samples groups of answers, publishes text, task and reward, and learns from I groups of its own and J
    that it draws evenly among what others published last; `external` is J / (I + J), 4 / 8 in the paper's best run. It
    encodes their text itself, pays it by its own world, and passes over groups that are paid all alike. Then

        L = mean_i (1/|y_i|) sum_t max(-A_i r_it, -A_i clip(r_it, 1 - low, 1 + high)),    r = pi / pi_old,

    with A GRPO's z-score in the group and pi_old the node's own policy before the update, for others' text too: the
    paper learns from it as if it were the node's own. That is biased towards whoever wrote it; correct=True publishes
    tokens and log-probabilities and takes r to the writer instead, for nodes of one tokenizer.

    pool: a folder that all nodes see, or "" for one inside this process; node: this one's name in it. A node alone is
    GRPO. Nodes share where they share tasks: a task is known by its number and name. How often a node passes over
    groups without contrast, and from how far back it draws, the paper leaves to the node; `newest` batches of each are
    ours. It has no KL term. Another method is also called SAPO: soft adaptive policy optimisation.
    """
    place = FolderPool(path=pool) if pool else LocalPool()
    sampling = Swarm(group=group, share=external, node=node, pool=place, newest=newest, correct=correct)
    return grpo(group=group, clip=low, kl=0).but({"sampling": sampling, "objective.trust.high": high})


def swarm(external: float, idle: int = 0) -> float:
    """Mean value over nodes and rounds of 8 nodes; the last `idle` of them publish what an untrained policy says."""
    return cumulative(lambda node, pool: sapo_swarm(external=external).but(
        {"sampling.node": node, "sampling.pool": LocalPool(name=pool)}
    ), idle=idle)  # fmt: skip


@sapo_swarm.claim(
    "Nodes that know one task each gather 1.3 times the reward when half of each batch is others'.",
    baseline="as many groups and steps, all of them their own",
    cost="slow",
)
def sharing() -> Finding:
    found = {share: swarm(share) for share in (0.0, 0.25, 0.5, 0.75)}
    return Finding(
        measured={f"mean reward, {round(8 * (1 - x))} own, {round(8 * x)} shared": y for x, y in found.items()}
        | {"4 shared over none": found[0.5] / found[0.0]},
        criterion="4 / 4 >= 1.3 times 8 / 0 (8 nodes, 6 tasks, 40 rounds, 2 seeds)",
        holds=found[0.5] >= 1.3 * found[0.0],
    )


@sapo_swarm.claim(
    "With three idle nodes among them, 6 of 8 groups from others gather no more than 4 of 8.",
    baseline="4 own, 4 shared",
    cost="slow",
    refuted=True,
)
def too_much() -> Finding:
    half, most = swarm(0.5, idle=3), swarm(0.75, idle=3)
    return Finding(
        measured={"4 / 4": half, "2 / 6": most},
        criterion="2 / 6 <= 4 / 4 (5 nodes that learn, 3 that publish what an untrained policy says)",
        holds=most <= half,
        note="A node pays what it reads by its own world and passes over what is paid all alike: of a node that knows "
        "nothing it takes just the groups in which something was right by luck. More of them did no harm here.",
    )


@sapo_swarm.claim(
    "The gradient of shared answers is biased; with the writer's log-probabilities it is not.", baseline="as one's own"
)
def correction() -> Finding:
    exact, corrected, own = pull_of_shared()
    off = [(g - exact).norm().item() / exact.norm().item() for g in (corrected, own)]
    cosine = torch.cosine_similarity(own, exact, dim=0).item()
    return Finding(
        measured={"relative bias, corrected": off[0], "as one's own": off[1], "as one's own, cosine": cosine},
        criterion="corrected < 1e-12, as one's own > 0.1 (exact, all answers listed, no clip and no baseline)",
        holds=off[0] < 1e-12 and off[1] > 0.1,
    )
