"""Problems for claims about row selection, and about progress by the number of decisions in the update."""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.measure import training
from polopt.lab.policy import TabularPolicy
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree, flat_gradient

# Where a reward has no noise: at its own extremes, or at those of the truth.
Trusted = Literal["extreme reward", "extreme truth"]


def two_keys(seed: int = 0) -> tuple[TokenTree, TabularPolicy]:
    """Returns 8 prompts with answers of 3 tokens of 4: the first and the last must be the prompt's own, the middle is
    free."""
    tree = TokenTree.full(4, 3, lambda p, a: float(a[0] == p % 4 and a[2] == (p // 4 + p) % 4), prompts=8)
    return tree, TabularPolicy(tree, spread=0.5, seed=seed)


def learn(
    algorithm: Algorithm, tree: TokenTree, policy: TabularPolicy, *, prompts: int, batches: int, rate: float, seed: int
) -> list[tuple[int, float]]:
    """Returns (decisions learned from so far, value) after each of `batches` batches of gradient descent; the policy is
    trained in place."""
    used, values = [], []
    for batch, _ in itertools.islice(
        training(algorithm.but(), tree, policy, rate=rate, rows=prompts, seed=seed), batches
    ):
        used.append(int(batch.mask.sum()))
        values.append(tree.value(policy).item())
    return list(zip(itertools.accumulate(used), values, strict=True))


def step_norm(algorithm: Algorithm, tree: TokenTree, policy: TabularPolicy, seed: int) -> float:
    """Norm of the gradient of one batch with a group for every prompt."""
    rows = tree.prompts * algorithm.sampling.group_size
    source = TreeSource(tree, policy, rows=rows, seed=seed, needs=algorithm.required_fields)
    algorithm = algorithm.but()
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    evaluation = policy.evaluate(batch, algorithm.objective.required_outputs)
    return flat_gradient(algorithm.objective(batch, evaluation).loss, policy).norm().item()


def rewarded(prompts: int, answers: int, trusted: Trusted, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Samples a reward and the truth, each [prompts, answers].

    One of them is uniform on [0, 1], and the other is that plus noise of standard deviation 0.6 exp(-((u -
    0.5) / 0.2)^2), with almost none at the extremes of the first.
    """
    generator = torch.Generator().manual_seed(seed)
    plain = torch.rand(prompts, answers, generator=generator, dtype=torch.double)
    noise = torch.randn(prompts, answers, generator=generator, dtype=torch.double)
    noisy = plain + 0.6 * torch.exp(-(((plain - 0.5) / 0.2) ** 2)) * noise
    return (plain, noisy) if trusted == "extreme reward" else (noisy, plain)


def as_rows(reward: Tensor) -> Experience:
    """Returns every answer as a row of one decision, numbered in `extras["row"]`, prompt by prompt."""
    count = reward.numel()
    return Experience(
        mask=torch.ones(count, 1, dtype=torch.bool),
        outcome=reward.flatten(),
        group=torch.arange(len(reward)).repeat_interleave(reward.shape[1]),
        extras={"row": torch.arange(count)},
    )
