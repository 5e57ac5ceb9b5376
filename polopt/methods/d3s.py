"""D3S: few rollouts and few tokens first, those that pull hardest, and more of both as training goes on."""

import itertools

import torch

from polopt.algorithm import Algorithm
from polopt.lab.selection import learn, step_norm, two_keys
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import TokenMean
from polopt.sampling import HighestVariance, TopDecisions, most_varied
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="Learning More with Less: A Dynamic Dual-Level Down-Sampling Framework for Efficient Policy Optimization",
        authors="Wang, Chao and Yang, Tao and others",
        year=2025,
        arxiv="2509.22115",
    ),
    changes="GRPO on the rows whose advantages vary most and their tokens of highest |A| H; a growing share of both.",
    room="sampling",
    tier="reading",
)
def d3s(
    *,
    group: int = 8,
    clip: float = 0.2,
    rows: tuple[float, float] = (0.25, 0.5),
    tokens: tuple[float, float] = (0.2, 0.6),
    steps: int = 100,
    within: str = "batch",
) -> Algorithm:
    """A_i is GRPO's; S = argmax over |S| = N of Var(A_S), across all groups of the batch; of the tokens in S the share
    K with the largest |A_i| H_it, H the sampler's entropy, stays in the loss: a mean over those tokens.

    N (as a share of the rows) and K go linearly from the first to the second number of `rows` and `tokens` in `steps`
    batches. within="group" chooses in each group for itself: D3S-I. The paper's end points are not known to us; these
    learn from 16 % of GRPO's tokens over a run ("under 20 %"). Baselines are not computed again for the kept rows.
    Where all advantages are equal the paper takes a random subset, here the first rows; neither teaches anything.
    """
    share = [Schedule(knots=[(0, first), (steps, last)]) for first, last in (rows, tokens)]
    select = [HighestVariance(share=share[0], within=within), TopDecisions(share=share[1])]  # type: ignore[arg-type]
    return grpo(group=group, clip=clip, kl=0).but({"select": select, "objective.aggregate": TokenMean()})


@d3s.claim("Scanning the extremes finds the subset of largest variance.", baseline="all subsets of 10 numbers")
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


BASE = d3s(group=16, steps=60)
PLAIN = BASE.but(select=[])
FROZEN = BASE.but(select=[HighestVariance(share=0.25), TopDecisions(share=0.2)])


def run(sentence: Algorithm, rate: float, seed: int) -> list[tuple[int, float]]:
    """(decisions learned from, value) after each of 60 batches."""
    return learn(sentence, *two_keys(seed), prompts=8, batches=60, rate=rate, seed=seed)


def until(history: list[tuple[int, float]], goal: float) -> tuple[int, int]:
    """Batches and decisions until the value reached the goal; of the whole run if it never did."""
    reached = ((batch, used) for batch, (used, value) in enumerate(history, start=1) if value >= goal)
    return next(reached, (len(history), history[-1][0]))


def longer_by(seed: int) -> float:
    """How much longer the first step is than GRPO's."""
    ours, base = (step_norm(sentence, *two_keys(seed), seed) for sentence in (BASE, PLAIN))
    return ours / base


@d3s.claim("A batch's gradient is at least 1.3 times as long.", baseline="GRPO, same policy and rollouts")
def longer() -> Finding:
    found = [longer_by(seed) for seed in range(5)]
    return Finding(
        measured={"least quotient of norms": min(found), "mean": sum(found) / len(found)},
        criterion="every quotient >= 1.3 (5 seeds)",
        holds=min(found) >= 1.3,
        note="Most of it is the mean over a twentieth of the decisions: see the claim on steps of equal length.",
    )


@d3s.claim("With 30 % of the decisions it gets as far, at the same learning rate.", baseline="GRPO, rate 8")
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


@d3s.claim(
    "It is sooner at value 0.9 than GRPO whose steps are as long.",
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


@d3s.claim(
    "Relaxing pays: the first shares kept to the end end lower.",
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
