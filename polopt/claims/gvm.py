"""These programs measure what the paper of GVM-RAFT claims."""

import torch

from polopt.claim import Finding, claim
from polopt.lab import bias_variance
from polopt.lab.budgets import log_likelihood, many_answers, until
from polopt.methods.gvm import gvm
from polopt.sampling import EqualRollouts, neyman


@claim(
    "No other division of 400 rollouts has less variance sum G^2 / (n p).",
    kind="theory",
    baseline="even, and 2,000 by chance",
)
def optimal() -> Finding:
    generator = torch.Generator().manual_seed(0)
    norm, p = (low + (high - low) * torch.rand(20, generator=generator).double() for low, high in ((0.5, 2), (0.05, 1)))
    chance = -torch.rand(2000, 20, generator=generator).double().log()

    def variance(share: torch.Tensor) -> torch.Tensor:
        return (norm**2 / (p * 400 * share / share.sum(-1, keepdim=True))).sum(-1)

    ours, even = variance(neyman(norm, p)).item(), variance(torch.ones(20).double()).item()
    least, closed = variance(chance).min().item(), (norm / p.sqrt()).sum().item() ** 2 / 400
    return Finding(
        measured={"variance": ours, "even": even, "least by chance": least, "off the closed form": abs(ours - closed)},
        criterion="below both, and (sum G / sqrt p)^2 / 400 to 1e-9, before rounding",
        holds=ours < min(even, least) and abs(ours - closed) < 1e-9,
    )


EVEN = gvm().but(**{"sampling.budget": EqualRollouts()})


@claim(
    "The gradient of a batch varies less.",
    kind="headline",
    baseline="even groups of as many rollouts: of 8 without the first round, of 16 with it",
    refuted=True,
)
def varies_less() -> Finding:
    tree, policy = many_answers(30)
    sentences = {"shared out": gvm(block=""), "even, 8": EVEN, "even, 16": EVEN.but(**{"sampling.group": 16})}
    found = {n: bias_variance(s, tree, policy, batches=30, rows=30).variance for n, s in sentences.items()}
    return Finding(
        measured=found,
        criterion="below even groups of 16, the first round counted",
        holds=found["shared out"] < found["even, 16"],
        note="30 tasks of one decision, p ~ U(0.05, 1). G^2 is not the variance but a second moment: known exactly, G "
        "would save 6 % here and the true deviations 9 %, and a first round of 8 misjudges them by more than that.",
    )


@claim("It learns from 70 % of the rollouts.", kind="headline", baseline="the same with even groups", refuted=True)
def sooner() -> Finding:
    effort = torch.zeros(2, 2, dtype=torch.double)
    for seed in range(3):
        for row, algorithm in enumerate((gvm(block=""), EVEN)):
            tree, policy = many_answers(30)
            found = until(algorithm, tree, policy, log_likelihood, -0.2, limit=100, rate=15.0, prompts=30, seed=seed)
            effort[row] += torch.tensor(found) / 3
    (steps, rollouts), (even_steps, even_rollouts) = effort.tolist()
    return Finding(
        measured={"rollouts": rollouts, "even": even_rollouts, "batches": steps, "even: batches": even_steps},
        criterion="rollouts to a log-likelihood of -0.2 <= 0.7x (3 seeds), the first round counted",
        holds=rollouts <= 0.7 * even_rollouts,
        note="As many batches as with even groups, each with a first round that doubles its cost. The paper measures "
        "before long rounds of training; a batch is too short for that.",
    )
