"""A problem whose answers differ in length and in their chance to be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from polopt.algorithm import Algorithm
from polopt.lab.measure import group_of, training
from polopt.lab.policy import TabularPolicy
from polopt.lab.shapes import coin
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree, flat_gradient
from polopt.objectives import SequenceSum


class Lengths(NamedTuple):
    """What a policy has come to: exact accuracy, mean length and entropy of its answers."""

    accuracy: float
    length: float
    entropy: float


def longer_is_surer(longest: int = 20) -> TokenTree:
    """Answers of 1 to `longest` tokens, whose first token picks the length L; right with chance 0.95 sigmoid(L - 6)."""
    answers = [(k, *[0] * k) for k in range(longest)]
    chance = 0.95 * torch.sigmoid(torch.arange(1.0, longest + 1) - 6)
    return TokenTree(longest, answers, chance[None].double())


def learn_lengths(build: Callable[[], Algorithm], *, rollouts: int, seeds: int, rate: float = 0.3) -> Lengths:
    """Where a policy that picks all lengths alike ends after so many batches of rollouts, each of one group; mean over
    seeds. Batches without rollouts come on top. Rows count alike, whatever their length."""
    tree, found = longer_is_surer(), []
    for seed in range(seeds):
        policy, algorithm = TabularPolicy(tree), build().but(**{"objective.aggregate": SequenceSum(length=1)})
        group, drawn = group_of(algorithm), 0
        for _, source in training(algorithm, tree, policy, rate=rate, seed=seed, draw=coin):
            drawn = source.drawn
            if drawn >= rollouts * group:
                break
        p = tree.log_probabilities(policy).detach().exp()[0]
        length = (p * torch.arange(1, len(p) + 1)).sum().item()
        found.append(Lengths(tree.value(policy).item(), length, tree.entropy(policy).item()))
    return Lengths(*(sum(x) / seeds for x in zip(*found, strict=True)))


def pull_on_length(algorithm: Algorithm, shortest: int, groups: int = 256) -> float:
    """How fast one step of gradient descent on a large batch moves the mean length, from a policy that picks all
    lengths from `shortest` on alike."""
    tree = longer_is_surer()
    policy, algorithm = TabularPolicy(tree), algorithm.but(**{"objective.aggregate": SequenceSum(length=1)})
    with torch.no_grad():
        policy.logits[tree.nodes[0, tree.start], : shortest - 1] = -30
    source = TreeSource(tree, policy, rows=groups * group_of(algorithm), draw=coin)
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    step = -flat_gradient(algorithm.objective(batch, policy.evaluate(batch)).loss, policy)
    probs = tree.log_probabilities(policy).exp()[0]
    return (step @ flat_gradient((probs * torch.arange(1, len(probs) + 1)).sum(), policy)).item()
