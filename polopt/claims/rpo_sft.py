"""These programs measure what the paper of RPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, flat_gradient
from polopt.lab.effects import More, effect
from polopt.lab.preferences import descended, every_preference, paired
from polopt.methods import rpo_sft as sentence
from polopt.methods.dpo import dpo
from polopt.methods.rpo_sft import rpo_sft

WORTH, START = [1.0, 0.0, -2.0], torch.tensor([0.495, 0.495, 0.01], dtype=torch.double)


def spurious(seed: int, comparisons: int = 50) -> tuple[TokenTree, TabularPolicy, Experience]:
    """Returns three arms of reward 1, 0 and -2, a policy that hardly ever takes the last one, and comparisons: of the
    first two by Bradley and Terry's model, and one that the last one has won over the first."""
    tree = TokenTree.bandit(WORTH)
    policy = TabularPolicy(tree).set_probabilities(START)
    draws = torch.rand(comparisons, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    wins = int((draws < torch.tensor(WORTH[0] - WORTH[1]).sigmoid()).sum())
    pairs = [(0, 1)] * wins + [(1, 0)] * (comparisons - wins) + [(2, 0)]
    return tree, policy, paired(tree, policy, pairs)


def value_after(algorithm: Algorithm, seed: int, step_size: float, steps: int = 60) -> float:
    tree, policy, batch = spurious(seed)
    descended(algorithm, batch, policy, step_size, steps)
    return tree.value(policy).item()


def _likelihood(policy: TabularPolicy, batch: Experience) -> torch.Tensor:
    return torch.where(batch.mask, policy.evaluate(batch).logp, 0).sum(1).mean()


@claim(
    "Its gradient is DPO's less eta beta times that of the mean log-likelihood of preferred answers.",
    kind="identity",
    baseline="the likelihood of all answers",
)
def gradient() -> Finding:
    tree, _, batch = every_preference([1, 3, 2, 1, 4, 2])
    away = TabularPolicy(tree, spread=1.0, seed=5)

    def of(algorithm: Algorithm) -> torch.Tensor:
        ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
        return flat_gradient(algorithm.objective(ready, away.evaluate(ready)).loss, away)

    beta, eta = 0.3, 2.0
    preferred, every = (
        flat_gradient(_likelihood(away, batch[rows]), away) for rows in (batch.outcome > 0, batch.outcome >= 0)
    )
    ours, zero, plain = of(rpo_sft(beta=beta, eta=eta)), of(rpo_sft(beta=beta, eta=0.0)), of(dpo(beta=beta))
    off, other = ((ours - (plain - eta * beta * g)).norm().item() for g in (preferred, every))
    none = (zero - plain).norm().item()
    return Finding(
        measured={"distance": off, "with all answers": other, "to DPO with eta 0": none},
        criterion="< 1e-12 with preferred answers, > 0.01 with all; to DPO < 1e-12 with eta 0",
        holds=max(off, none) < 1e-12 and other > 0.01,
    )


@claim(
    "Trained to the end, one spurious comparison does not carry it to an answer that nothing else is known of.",
    kind="part",
    baseline="DPO, as many steps of the same size",
)
def to_the_end() -> Finding:
    ours, plain = (
        [value_after(algorithm, seed, 300.0) for seed in range(5)] for algorithm in (rpo_sft(eta=0.2), dpo())
    )
    return Finding(
        measured={"value": sum(ours) / 5, "DPO": sum(plain) / 5},
        criterion="mean value of 5 seeds > 0.5, DPO's < -1 (beta 0.1, eta 0.2, 60 steps of 300)",
        holds=sum(ours) / 5 > 0.5 and sum(plain) / 5 < -1,
    )


@effect(
    "It ends with a better policy than DPO.",
    kind="headline",
    method=lambda: rpo_sft(eta=0.2),
    controls={"dpo": dpo},
    step_sizes=(0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    criteria=[More("value", by=0.05)],
    seeds=10,
    trials=3,
    refuted=True,
    cost="slow",
    note="DPO that is stopped early, by a small step size, follows the many comparisons before the one: it ends as "
    "high. What the likelihood saves is knowing when to stop.",
)
def better(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"value": value_after(algorithm, seed, step_size)}


@mutation("Rejected answers are imitated as well.", kills=gradient)
def all_answers(replace: Replace) -> None:
    right = sentence.Branch
    replace(sentence, "Branch", lambda objective, rows=None, weight=1.0: right(objective=objective, weight=weight))
