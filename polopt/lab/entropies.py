"""Exact measurements of a policy's entropy under updates."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.lab.measure import train
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree


def softmaxes(count: int, choices: int, spread: float = 1.0, seed: int = 0) -> Tensor:
    """Samples random logits [count, choices] in float64."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, choices, generator=generator, dtype=torch.double)


def entropy_after(logits: Tensor, step: Tensor) -> Tensor:
    """Returns the change of the entropy, [...], by a step [..., V] of the logits [..., V]."""
    return ops.entropy_of((logits + step).log_softmax(-1)) - ops.entropy_of(logits.log_softmax(-1))


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson correlation."""
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item()


@dataclasses.dataclass(frozen=True)
class EntropyLeft:
    """Entropy that remains after learning a bandit, in nats, mean over seeds.

    then: entropy when the success rate is first reached.
    last: entropy at the end.
    success: success rate at the end.
    reached: whether the success rate was reached for every seed.
    """

    then: float
    last: float
    success: float
    reached: bool


def arms(right: int = 8, arms: int = 32) -> TokenTree:
    """Returns a bandit on which `right` of `arms` arms have reward 1."""
    return TokenTree.bandit([1.0] * right + [0.0] * (arms - right))


def questions(contexts: int = 8, right: int = 4, arms: int = 16) -> TokenTree:
    """Returns bandits with different rewarded arms, `right` of `arms` each."""
    order = torch.rand(contexts, arms, generator=torch.Generator().manual_seed(0)).argsort(1)
    return TokenTree.bandit((order < right).double().tolist())


def entropy_kept(
    algorithm: Algorithm, tree: TokenTree, *, success: float, steps: int, rate: float, epochs: int = 1, seeds: int = 4
) -> EntropyLeft:
    """Trains the uniform policy on the tree, with all its prompts in each batch, and returns the entropy that
    remains."""
    found = []
    for seed in range(seeds):
        values, entropies = learning_curve(algorithm, tree, steps=steps, rate=rate, epochs=epochs, seed=seed)
        there = [entropy for value, entropy in zip(values, entropies, strict=True) if value >= success]
        found.append(((there or entropies[-1:])[0], entropies[-1], values[-1], float(bool(there))))
    then, last, value, reached = torch.tensor(found, dtype=torch.double).mean(0).tolist()
    return EntropyLeft(then, last, value, reached == 1)


def learning_curve(
    algorithm: Algorithm, tree: TokenTree, *, steps: int, rate: float, epochs: int = 1, seed: int = 0
) -> tuple[list[float], list[float]]:
    """Returns value and entropy after each batch of learning from the uniform policy."""
    policy, values = TabularPolicy(tree), list[float]()

    def watch() -> float:
        values.append(tree.value(policy).item())
        return tree.entropy(policy).item()

    ways: dict[str, Any] = {"steps": steps, "rate": rate, "rows": tree.prompts, "epochs": epochs, "seed": seed}
    entropies = train(algorithm, tree, policy, watch=watch, **ways)
    return values, entropies


def forks_and_fillers() -> tuple[TokenTree, TabularPolicy]:
    """Returns a problem of four tokens out of four, with forks at the first and third, and fillers at the second and
    fourth.

    At a fork 0 and 1 are right and the policy is uniform; a filler must be 0, which the policy prefers by 3 nats.
    """
    tree = TokenTree.full(4, 4, lambda prompt, answer: float(answer[1] == answer[3] == 0 and max(answer[::2]) < 2))
    policy = TabularPolicy(tree)
    with torch.no_grad():
        policy.logits[tree.nodes[:, tree.start + 1 :: 2].unique(), 0] += 3
    return tree, policy


def fork_curve(
    algorithm: Algorithm, *, steps: int, rate: float, epochs: int, seed: int
) -> list[tuple[float, float, float]]:
    """Returns success, and the mean entropy at forks and at fillers by visits, after each batch of four groups."""
    tree, policy = forks_and_fillers()
    leaves, seen = tree.leaves(), list[tuple[float, float, float]]()

    def watch() -> float:
        evaluation = policy.evaluate(leaves, frozenset({"entropy"}))
        reached = tree.log_probabilities(policy).exp().flatten()
        fork, filler = (evaluation.entropy[:, tree.start + i :: 2].mean(1) @ reached for i in (0, 1))
        seen.append((tree.value(policy).item(), fork.item(), filler.item()))
        return 0.0

    train(algorithm, tree, policy, steps=steps, rate=rate, rows=4, epochs=epochs, seed=seed, watch=watch)
    return seen
