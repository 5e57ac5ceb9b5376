"""These programs measure what the paper of SAPO claims."""

import torch

from polopt.backends import LocalPool
from polopt.claim import Finding, claim
from polopt.claims.problems.swarm import cumulative, pull_of_shared
from polopt.methods.sapo_swarm import sapo_swarm


def swarm(external: float, idle: int = 0) -> float:
    """Mean value over nodes and rounds of 8 nodes; the last `idle` of them publish an untrained policy's answers."""
    return cumulative(lambda node, pool: sapo_swarm(external=external).but(
        {"sampling.node": node, "sampling.pool": LocalPool(name=pool)}
    ), idle=idle)  # fmt: skip


@claim(
    "Nodes that know one task each gather 1.3 times the reward when half of each batch is others'.",
    kind="headline",
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


@claim(
    "With three idle nodes among them, 6 of 8 groups from others gather no more than 4 of 8.",
    kind="part",
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


@claim(
    "The gradient of shared answers is biased; with the writer's log-probabilities it is not.",
    kind="identity",
    baseline="as one's own",
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
