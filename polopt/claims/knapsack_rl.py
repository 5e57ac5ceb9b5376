"""These programs measure what the paper of Knapsack RL claims."""

import math

import torch
from torch import Tensor

import polopt.sampling.allocation as allocation
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.budgets import graded, mixed_share, pool, value_after
from polopt.lab.effects import More, effect
from polopt.methods.grpo import grpo
from polopt.methods.knapsack_rl import knapsack_rl
from polopt.objectives import PromptMean
from polopt.sampling import allocate, knapsack_value
from polopt.sampling.allocation import allocate_exactly


@claim(
    "The rollouts are worth 5 % more by V, and never less.", kind="part", baseline="8 for each of 64 tasks, 100 pools"
)
def value() -> Finding:
    ours, even, worse = 0.0, 0.0, 0
    for seed in range(100):
        p = pool(64, seed)
        a, b = (knapsack_value(n.double(), p).sum().item() for n in (allocate(p, 512), torch.full_like(p, 8)))
        ours, even, worse = ours + a / 100, even + b / 100, worse + (a < b)
    return Finding(
        measured={"V": ours, "V of even groups": even, "quotient": ours / even, "pools with less": float(worse)},
        criterion="quotient >= 1.05 and no pool with less (p ~ Beta(0.3, 0.8))",
        holds=ours >= 1.05 * even and not worse,
    )


@claim(
    "In pools of tasks of every difficulty more groups hold right and wrong answers.",
    kind="headline",
    baseline="8 for each of 64 tasks, 100 pools",
)
def effective() -> Finding:
    gains = []
    for seed in range(100):
        p = pool(64, seed)
        gains.append(mixed_share(allocate(p, 512), p) - mixed_share(torch.full_like(p, 8), p))
    mean = sum(gains) / 100
    return Finding(
        measured={"gain of the expected share": mean, "pools with a gain": float(sum(gain > 0 for gain in gains))},
        criterion="a gain in >= 95 of 100 pools (p ~ Beta(0.3, 0.8)), shares exact",
        holds=sum(gain > 0 for gain in gains) >= 95,
    )


@claim(
    "So they do where tasks are either easy or hard.",
    kind="limit",
    baseline="8 for each task",
    refuted=True,
)
def easy_or_hard() -> Finding:
    p = torch.tensor([0.02] * 40 + [0.98] * 40 + [0.5] * 20).double()
    ours, even = mixed_share(allocate(p, 800), p), mixed_share(torch.full_like(p, 8), p)
    return Finding(
        measured={"expected share": ours, "even groups": even},
        criterion="a larger expected share of 40 tasks at 0.02, 40 at 0.98 and 20 at 0.5",
        holds=ours > even,
        note="V weighs a group by p (1 - p)^2, so the easy ones are given up for the hard ones.",
    )


@effect(
    "From as many rollouts it learns more.",
    kind="headline",
    method=knapsack_rl,
    controls={"grpo": lambda: grpo(group=8, kl=0)},
    step_sizes=(128.0, 512.0, 2048.0, 8192.0, 32768.0),
    criteria=[More("success", by=0.0)],
    cost="slow",
    note="Mean p of 64 tasks, p ~ Beta(0.3, 0.8), after 20 batches of 512 rollouts.",
)
def learns(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"success": value_after(algorithm, *graded(64, seed), steps=20, rate=step_size, seed=seed)}


@effect(
    "So it does where every task counts once in the loss, whatever its rollouts.",
    kind="limit",
    method=lambda: knapsack_rl().but(**{"objective.aggregate": PromptMean()}),
    controls={"grpo": lambda: grpo(group=8, kl=0)},
    step_sizes=(512.0, 2048.0, 8192.0, 32768.0, 131072.0),
    criteria=[More("success", by=0.0)],
    cost="slow",
)
def every_task_once(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"success": value_after(algorithm, *graded(64, seed), steps=20, rate=step_size, seed=seed)}


@claim(
    "V is the probability of a mixed group times what a step on a right answer adds to p; its rollouts are the best.",
    kind="identity",
    baseline="V by p (1 - p), the variance of an outcome",
)
def exact() -> Finding:
    logit = torch.linspace(-3, 3, 13, dtype=torch.double, requires_grad=True)
    p = logit.sigmoid()
    (push,) = torch.autograd.grad(p.log().sum(), logit, retain_graph=True)
    (slope,) = torch.autograd.grad(p.sum(), logit)
    p = p.detach()
    mixed = torch.tensor(
        [
            [sum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(1, n)) for x in p.tolist()]
            for n in (2, 5, 8)
        ],
        dtype=torch.double,
    )
    worth = torch.stack([knapsack_value(torch.full_like(p, n), p) for n in (2, 5, 8)])
    off = (worth - mixed * push * slope).abs().max().item()
    behind, plain = 0.0, 0.0
    for seed in range(5):
        rates = pool(8, seed)
        best, ours, other = (
            _worth(counts, rates)
            for counts in (allocate_exactly(rates, 64), allocate(rates, 64), _by_variance(rates, 64))
        )
        behind, plain = max(behind, 1 - ours / best), max(plain, 1 - other / best)
    return Finding(
        measured={"error of V": off, "behind the best": behind, "behind it by p (1 - p)": plain},
        criterion="both < 1e-10, for 13 rates, and in 5 pools of 8 tasks by dynamic programming; p (1 - p) > 0.001 "
        "behind",
        holds=off < 1e-10 and behind < 1e-10 and plain > 0.001,
    )


def _worth(counts: Tensor, p: Tensor) -> float:
    n = counts.double()
    return ((1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2).sum().item()


def _by_variance(p: Tensor, total: int) -> Tensor:
    """The division that is best by (1 - p^n - (1 - p)^n) p (1 - p), one rollout after the other from 2 each."""
    counts = torch.full((len(p),), 2)
    for _ in range(total - 2 * len(p)):
        n = counts.double()
        counts[((p**n * (1 - p) + (1 - p) ** n * p) * p * (1 - p)).argmax()] += 1
    return counts


@mutation("Rollouts go by p (1 - p) in place of p (1 - p)^2.", kills=exact)
def variance(replace: Replace) -> None:
    def gains(p: Tensor, low: int, up: int) -> list[list[float]]:
        n, q = torch.arange(low, max(up, low + 1), dtype=torch.float64), p.double()[:, None]
        return ((q**n * (1 - q) + (1 - q) ** n * q) * q * (1 - q)).tolist()

    replace(allocation, "_gains", gains)


@mutation("Rollouts go to where one more answer is most likely right.", kills=value)
def likely_right(replace: Replace) -> None:
    def gains(p: Tensor, low: int, up: int) -> list[list[float]]:
        return p.double()[:, None].expand(-1, max(up - low, 1)).tolist()

    replace(allocation, "_gains", gains)
