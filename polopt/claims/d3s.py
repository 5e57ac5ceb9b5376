"""These programs measure what the paper of D3S claims."""

import itertools
import math
import sys
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TreeSource
from polopt.lab.effects import Less, More, effect
from polopt.lab.selection import learn, step_norm, two_keys
from polopt.lab.shapes import coin
from polopt.methods import d3s as sentence
from polopt.methods.d3s import HighestVariance, TopDecisions, d3s, most_varied


@claim(
    "Scanning the extremes finds the subset of largest variance.", kind="identity", baseline="all subsets of 10 numbers"
)
def exact() -> Finding:
    generator = torch.Generator().manual_seed(0)
    worst, least = 0.0, float("inf")
    for _ in range(20):
        x = torch.randn(10, generator=generator, dtype=torch.double) / torch.rand(10, generator=generator).double()
        z = (x - x.mean()) / x.std(correction=0)
        for keep in range(1, 11):
            subsets = torch.tensor(list(itertools.combinations(range(10), keep)))
            best = z[subsets].var(1, correction=0).max().item()
            worst = max(worst, best - z[most_varied(x, keep)].var(correction=0).item())
            least = min(least, best if keep > 1 else least)
    return Finding(
        measured={"most variance missed": worst, "least variance of a standardised set's best subset": least},
        criterion="missed < 1e-12; never below 1 from 2 numbers on, so selection does not lower the gradient's bound",
        holds=worst < 1e-12 and least >= 1 - 1e-12,
    )


@claim(
    "Of the rows that stay, those tokens stay whose |A| H is largest.",
    kind="identity",
    baseline="the tokens of largest |A|, and of largest H",
)
def tokens() -> Finding:
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(12) < torch.randint(4, 13, (16, 1), generator=g)
    advantage = torch.randn(16, 1, generator=g, dtype=torch.double).expand(16, 12)
    entropy = torch.rand(16, 12, generator=g, dtype=torch.double)
    batch = Experience(mask=mask, advantage=advantage, entropy=entropy)
    found = set(TopDecisions(share=0.2)(batch).mask.flatten().nonzero().flatten().tolist())
    decided = mask.flatten().nonzero().flatten().tolist()
    size, doubt = advantage.abs().flatten().tolist(), entropy.flatten().tolist()
    count = round(0.2 * len(decided))
    best = [
        set(sorted(decided, key=lambda i: -score(i))[:count])
        for score in (lambda i: size[i] * doubt[i], lambda i: size[i], lambda i: doubt[i])
    ]
    return Finding(
        measured={
            "differ from the largest |A| H": len(found ^ best[0]),
            "from the largest |A|": len(found ^ best[1]),
            "from the largest H": len(found ^ best[2]),
        },
        criterion="the fifth of largest |A| H, and not that of largest |A| or H",
        holds=found == best[0] and found != best[1] and found != best[2],
    )


BASE = d3s(group=16, steps=60)
PLAIN = BASE.but(select=[])
FROZEN = BASE.but(select=[HighestVariance(share=0.25), TopDecisions(share=0.2)])


def run(algorithm: Algorithm, rate: float, seed: int) -> list[tuple[int, float]]:
    """(decisions learned from, value) after each of 60 batches."""
    return learn(algorithm, *two_keys(seed), prompts=8, batches=60, rate=rate, seed=seed)


def longer_by(seed: int) -> float:
    """Returns how much longer the first step is than GRPO's."""
    ours, base = (step_norm(algorithm, *two_keys(seed), seed) for algorithm in (BASE, PLAIN))
    return ours / base


@claim("A batch's gradient is at least 1.3 times as long.", kind="part", baseline="GRPO, same policy and rollouts")
def longer() -> Finding:
    found = [longer_by(seed) for seed in range(5)]
    return Finding(
        measured={"least quotient of norms": min(found), "mean": sum(found) / len(found)},
        criterion="every quotient >= 1.3 (5 seeds)",
        holds=min(found) >= 1.3,
        note="Most of it is the mean over a twentieth of the decisions: see the effects at best step sizes.",
    )


def _to_a_goal(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """Batches and decisions until the value is 0.9."""
    history = run(algorithm, step_size, seed)
    there = next((batch for batch, (_, value) in enumerate(history, start=1) if value >= 0.9), None)
    if there is None:
        return {"decisions": math.nan, "batches": math.nan}
    return {"decisions": float(history[there - 1][0]), "batches": float(there)}


SIZES = (8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


@effect(
    "It reaches value 0.9 with at most 30 % of the decisions that GRPO learns from.",
    kind="headline",
    method=lambda: BASE,
    controls={"grpo": lambda: PLAIN},
    step_sizes=SIZES,
    criteria=[Less("decisions", times=0.3)],
    cost="slow",
)
def fewer_decisions(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _to_a_goal(algorithm, seed, step_size)


@effect(
    "It is sooner at value 0.9 than GRPO, in batches.",
    kind="headline",
    method=lambda: BASE,
    controls={"grpo": lambda: PLAIN},
    step_sizes=(16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0),
    criteria=[Less("batches", times=1.0)],
    seeds=20,
    trials=8,
    cost="slow",
    refuted=True,
    note="Fewer decisions of the same rollouts know less: it needs 1.04 to 1.3 times as many "
    "batches. What is left is that fewer have to be differentiated.",
)
def fewer_batches(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _to_a_goal(algorithm, seed, step_size)


@effect(
    "Relaxing pays: the first shares kept to the end end lower.",
    kind="part",
    method=lambda: BASE,
    controls={"the first shares throughout": lambda: FROZEN},
    step_sizes=(0.05, 0.1, 0.2, 0.4),
    criteria=[More("success", by=0.0)],
    seeds=20,
    cost="slow",
    note="With Adam, whose steps are no longer for a mean over fewer decisions, and with a fifth of the outcomes "
    "turned round: of clean ones long steps learn everything, whatever is selected. GRPO on all decisions ends higher.",
)
def relaxing(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = two_keys(seed)
    noisy = tree.paying(0.2 + 0.6 * tree.outcome)
    algorithm = algorithm.but()
    ways: dict[str, Any] = {"seed": seed, "needs": algorithm.required_fields, "draw": coin}
    source = TreeSource(noisy, policy, rows=8 * algorithm.sampling.group_size, **ways)
    optimiser = torch.optim.Adam(policy.parameters(), lr=step_size)
    for _ in range(60):
        source.refresh()
        batch = algorithm.compute_advantages(algorithm.sampling(source))
        optimiser.zero_grad()
        algorithm.objective(batch, policy.evaluate(batch)).loss.backward()
        optimiser.step()
        algorithm.step()
    return {"success": tree.value(policy).item()}


@mutation("The subset is that of the largest numbers.", kills=exact)
def largest_alone(replace: Replace) -> None:
    def largest(x: Tensor, keep: int) -> Tensor:
        return torch.zeros(len(x)).bool().index_fill(0, x.argsort(descending=True)[:keep], True)

    for owner in (sentence, sys.modules[__name__]):
        replace(owner, "most_varied", largest)


@mutation("Tokens are ranked without their entropy.", kills=tokens)
def without_entropy(replace: Replace) -> None:
    forward = TopDecisions.forward

    def plain(self: TopDecisions, batch: Experience) -> Experience:
        return forward(self, batch.replace(entropy=torch.ones_like(batch.advantage)))

    replace(TopDecisions, "forward", plain)
