"""These programs measure what the paper of SAPO claims."""

import torch

import polopt.claims.problems.swarm as swarm_problem
import polopt.methods.sapo_swarm as module
from polopt.algorithm import Algorithm
from polopt.backends import LocalPool
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.swarm import cumulative, knowing, pull_of_shared
from polopt.experience import Experience
from polopt.lab.effects import More, effect
from polopt.lab.source import TreeSource
from polopt.methods.sapo_swarm import sapo_swarm
from polopt.metrics import mixed_groups

STEP_SIZES = (1.0, 2.0, 4.0, 8.0)


def _swarm(algorithm: Algorithm, seed: int, step_size: float, idle: int = 0) -> dict[str, float]:
    """Mean value over nodes and 40 rounds of 8 nodes; the last `idle` of them publish an untrained policy's answers."""

    def node(name: str, pool: str) -> Algorithm:
        return algorithm.but({"sampling.node": name, "sampling.pool": LocalPool(name=pool)})

    return {"mean reward": cumulative(node, seed=seed, step_size=step_size, idle=idle)}


@effect(
    "Nodes that know one task each gather 1.3 times the reward when half of each batch is others'.",
    kind="headline",
    method=sapo_swarm,
    controls={"as many groups and steps, all of them their own": lambda: sapo_swarm(external=0.0)},
    step_sizes=STEP_SIZES,
    criteria=[More("mean reward", times=1.3)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="8 nodes, 6 tasks. It gathers 1.32 times as much, but the interval includes 1.3. Nodes that "
    "share sample half as much.",
)
def sharing(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _swarm(algorithm, seed, step_size)


@effect(
    "With three idle nodes among them, 4 of 8 groups from others gather more than 6 of 8.",
    kind="part",
    method=sapo_swarm,
    controls={"6 of 8": lambda: sapo_swarm(external=0.75)},
    step_sizes=STEP_SIZES,
    criteria=[More("mean reward", times=1.0)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="A node computes the reward in its own environment and passes over groups of equal rewards: of a node that "
    "knows nothing it takes just the groups in which something was right by luck.",
)
def too_much(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _swarm(algorithm, seed, step_size, idle=3)


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


def _reading(share: float, batches: int = 8) -> tuple[list[Experience], list[Experience]]:
    """The groups that a node takes from another one, which published four batches before; and all that it published."""
    pool = LocalPool(name="claims.swarm")
    pool.clear()
    nodes = []
    for number, name in enumerate(("reader", "writer")):
        policy = knowing(number, unknown=0.1)
        algorithm = sapo_swarm(external=share, node=name).but({"sampling.pool": pool})
        nodes.append((algorithm, TreeSource(policy.tree, policy, rows=64, seed=number)))
    (reader, reads), (writer, writes) = nodes
    published = [writer.sampling(writes) for _ in range(4)]
    read = [reader.sampling(reads) for _ in range(batches)]
    pool.clear()
    return read, published


def _mixed(batches: list[Experience]) -> float:
    """Share of the groups that hold different outcomes."""
    return sum(mixed_groups(batch.outcome, batch.group).item() for batch in batches) / len(batches)


@claim(
    "Half of a batch's groups are others', and of those that all have equal outcomes none is taken.",
    kind="identity",
    baseline="the groups that the other has published, many of them of equal outcomes",
)
def taken() -> Finding:
    read, published = _reading(share=0.5)
    external = [batch[batch.extras["external"]] for batch in read]
    shares = [len(part) / len(batch) for part, batch in zip(external, read, strict=True)]
    varied, offered = _mixed(external), _mixed(published)
    return Finding(
        measured={"least share of others'": min(shares), "most": max(shares), "theirs with contrast": varied}
        | {"published with contrast": offered},
        criterion="share 1/2 in each of 8 batches, all of theirs with contrast; of those published less than 0.9",
        holds=min(shares) == max(shares) == 0.5 and varied == 1 and offered < 0.9,
        note="Two nodes, each of which solves one of six tasks and knows little of the others; eight groups of eight.",
    )


@mutation("Others' groups are taken though all their outcomes are equal.", kills=taken)
def takes_equal_outcomes(replace: Replace) -> None:
    replace(module, "MixedGroups", lambda: lambda batch: batch)


@mutation("The log-probabilities of the node that sampled are not taken over.", kills=correction)
def not_taken_over(replace: Replace) -> None:
    replace(swarm_problem, "as_drawn", lambda batch, drawn: batch)
