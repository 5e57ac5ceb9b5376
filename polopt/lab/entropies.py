"""What updates do to the entropy of a policy, measured where it is exact."""

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
    """[count, choices] random logits in float64."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, choices, generator=generator, dtype=torch.double)


def entropy_after(logits: Tensor, step: Tensor) -> Tensor:
    """[...] by how much a step [..., V] of the logits [..., V] changes the entropy."""
    return ops.entropy_of((logits + step).log_softmax(-1)) - ops.entropy_of(logits.log_softmax(-1))


def correlation(a: Tensor, b: Tensor) -> float:
    """Pearson's."""
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item()


@dataclasses.dataclass(frozen=True)
class EntropyLeft:
    """How much entropy learning a bandit leaves, in nats: when success is first reached, and at the end; means over
    seeds. success: at the end. reached: whether it was, for every seed."""

    then: float
    last: float
    success: float
    reached: bool


def arms(right: int = 8, arms: int = 32) -> TokenTree:
    """A bandit on which `right` of `arms` pay 1."""
    return TokenTree.bandit([1.0] * right + [0.0] * (arms - right))


def questions(contexts: int = 8, right: int = 4, arms: int = 16) -> TokenTree:
    """Bandits of which each pays 1 for other arms."""
    order = torch.rand(contexts, arms, generator=torch.Generator().manual_seed(0)).argsort(1)
    return TokenTree.bandit((order < right).double().tolist())


def entropy_kept(
    algorithm: Algorithm, tree: TokenTree, *, success: float, steps: int, rate: float, epochs: int = 1, seeds: int = 4
) -> EntropyLeft:
    """Learn the tree from the uniform policy, all its prompts in each batch."""
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
    """Value and entropy after each batch of learning from the uniform policy."""
    policy, values = TabularPolicy(tree), list[float]()

    def watch() -> float:
        values.append(tree.value(policy).item())
        return tree.entropy(policy).item()

    ways: dict[str, Any] = {"steps": steps, "rate": rate, "rows": tree.prompts, "epochs": epochs, "seed": seed}
    entropies = train(algorithm, tree, policy, watch=watch, **ways)
    return values, entropies


def forks_and_fillers() -> tuple[TokenTree, TabularPolicy]:
    """Answers of four tokens out of four: the first and the third are forks, of which 0 and 1 are right and nothing is
    decided; the second and the fourth are fillers, which must be 0 and nearly always are."""
    tree = TokenTree.full(4, 4, lambda prompt, answer: float(answer[1] == answer[3] == 0 and max(answer[::2]) < 2))
    policy = TabularPolicy(tree)
    with torch.no_grad():
        policy.logits[tree.nodes[:, tree.start + 1 :: 2].unique(), 0] += 3
    return tree, policy


def fork_curve(
    algorithm: Algorithm, *, steps: int, rate: float, epochs: int, seed: int
) -> list[tuple[float, float, float]]:
    """Success, and entropy at a fork and at a filler as often as they are met, after each batch of four groups."""
    tree, policy = forks_and_fillers()
    leaves, seen = tree.leaves(), list[tuple[float, float, float]]()

    def watch() -> float:
        said = policy.evaluate(leaves, frozenset({"entropy"}))
        reached = tree.log_probabilities(policy).exp().flatten()
        fork, filler = (said.entropy[:, tree.start + i :: 2].mean(1) @ reached for i in (0, 1))
        seen.append((tree.value(policy).item(), fork.item(), filler.item()))
        return 0.0

    train(algorithm, tree, policy, steps=steps, rate=rate, rows=4, epochs=epochs, seed=seed, watch=watch)
    return seen


def at_equal_success(ours: list[tuple[float, float, float]], base: list[tuple[float, float, float]]) -> list[float]:
    """Success at the end of `ours` and its two entropies, then those of `base` when it first does as well."""
    there = next((point for point in base if point[0] >= ours[-1][0]), base[-1])
    return [*ours[-1], *there[1:]]
