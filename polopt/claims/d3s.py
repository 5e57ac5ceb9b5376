"""These programs measure what the paper of D3S claims."""

import itertools
import sys

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab.selection import learn, step_norm, two_keys
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


def until(history: list[tuple[int, float]], goal: float) -> tuple[int, int]:
    """Batches and decisions until the value reached the goal; of the whole run if it never did."""
    reached = ((batch, used) for batch, (used, value) in enumerate(history, start=1) if value >= goal)
    return next(reached, (len(history), history[-1][0]))


def longer_by(seed: int) -> float:
    """How much longer the first step is than GRPO's."""
    ours, base = (step_norm(algorithm, *two_keys(seed), seed) for algorithm in (BASE, PLAIN))
    return ours / base


@claim("A batch's gradient is at least 1.3 times as long.", kind="part", baseline="GRPO, same policy and rollouts")
def longer() -> Finding:
    found = [longer_by(seed) for seed in range(5)]
    return Finding(
        measured={"least quotient of norms": min(found), "mean": sum(found) / len(found)},
        criterion="every quotient >= 1.3 (5 seeds)",
        holds=min(found) >= 1.3,
        note="Most of it is the mean over a twentieth of the decisions: see the claim on steps of equal length.",
    )


@claim(
    "With 30 % of the decisions it gets as far, at the same learning rate.", kind="headline", baseline="GRPO, rate 8"
)
def budget() -> Finding:
    spent, behind = [], []
    for seed in range(5):
        ours, base = run(BASE, 8.0, seed), run(PLAIN, 8.0, seed)
        spent.append(until(ours, 0.9 * base[-1][1])[1] / base[-1][0])
        behind.append(base[-1][1] - ours[-1][1])
    return Finding(
        measured={"largest share of decisions": max(spent), "largest loss of final value": max(behind)},
        criterion="90 % of GRPO's final value with <= 0.3 of its decisions; final value at most 0.01 lower (5 seeds)",
        holds=max(spent) <= 0.3 and max(behind) <= 0.01,
    )


@claim(
    "It is sooner at value 0.9 than GRPO whose steps are as long.",
    kind="headline",
    baseline="GRPO, rate times the quotient of first norms",
    refuted=True,
)
def no_longer_steps() -> Finding:
    ours, base = [], []
    for seed in range(5):
        ours.append(until(run(BASE, 8.0, seed), 0.9))
        base.append(until(run(PLAIN, 8.0 * longer_by(seed), seed), 0.9))
    means = [sum(x[i] for x in found) / 5 for found in (ours, base) for i in (0, 1)]
    names = ("batches", "decisions", "GRPO: batches", "GRPO: decisions")
    return Finding(
        measured=dict(zip(names, means, strict=True)),
        criterion="fewer batches than GRPO, mean of 5 seeds",
        holds=means[0] < means[2],
        note="The speed in batches, and so in rollouts, is that of a larger learning rate. What is left is that fewer "
        "decisions have to be differentiated.",
    )


@claim(
    "Relaxing pays: the first shares kept to the end end lower.",
    kind="part",
    baseline="frozen shares, at two rates",
    cost="slow",
    refuted=True,
)
def relaxing() -> Finding:
    ends = {rate: [(run(BASE, rate, s)[-1][1], run(FROZEN, rate, s)[-1][1]) for s in range(10)] for rate in (4.0, 8.0)}
    wins = {rate: sum(ours > frozen for ours, frozen in pairs) for rate, pairs in ends.items()}
    return Finding(
        measured={"seeds of 10 that end higher, rate 4": wins[4.0], "rate 8": wins[8.0]},
        criterion="at both rates, >= 7 of 10",
        holds=min(wins.values()) >= 7,
        note="It pays at rate 4 alone. At twice the rate it is the other way round: both are above 0.98 then, and few "
        "tokens make longer steps.",
    )


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
