"""These programs measure what the paper of Knapsack RL claims."""

import torch

from polopt.claim import Finding, claim
from polopt.lab.budgets import graded, mixed_share, pool, value_after
from polopt.methods.grpo import grpo
from polopt.methods.knapsack_rl import knapsack_rl
from polopt.objectives import PromptMean
from polopt.sampling import allocate, knapsack_value


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


@claim("More groups hold right and wrong answers.", kind="headline", baseline="8 for each task", refuted=True)
def effective() -> Finding:
    pools = {"mixed": pool(64, 0), "easy or hard": torch.tensor([0.02] * 40 + [0.98] * 40 + [0.5] * 20).double()}
    measured = {}
    for name, p in pools.items():
        measured[name] = mixed_share(allocate(p, 8 * len(p)), p)
        measured[f"{name}, even groups"] = mixed_share(torch.full_like(p, 8), p)
    return Finding(
        measured=measured,
        criterion="a larger expected share in both pools",
        holds=all(measured[name] > measured[f"{name}, even groups"] for name in pools),
        note="V weighs a group by p (1 - p)^2, so the easy ones are given up for the hard ones: of 40 tasks at 0.02, "
        "40 at 0.98 and 20 at 0.5 fewer groups are mixed than with 8 each. The value is higher all the same.",
    )


@claim("From as many rollouts it learns more.", kind="headline", baseline="GRPO: 8 for each of 64 tasks, 10 seeds")
def learns() -> Finding:
    alike = knapsack_rl().but(**{"objective.aggregate": PromptMean()})
    ours, once, base = (
        [value_after(s, *graded(64, seed), steps=20, rate=16.0, seed=seed) for seed in range(10)]
        for s in (knapsack_rl(), alike, grpo(group=8, kl=0))
    )
    wins = sum(a > b for a, b in zip(ours, base, strict=True))
    return Finding(
        measured={
            "mean p": sum(ours) / 10,
            "GRPO": sum(base) / 10,
            "seeds ahead": float(wins),
            "mean p, every task counting once": sum(once) / 10,
        },
        criterion="mean p higher in >= 8 of 10 seeds, after 20 batches of 512 rollouts",
        holds=wins >= 8,
        note="So early it is faster because a larger group weighs more in the mean over answers: hard tasks take "
        "longer steps. Where every task counts once (`PromptMean`) it is not ahead of even groups by then.",
    )
