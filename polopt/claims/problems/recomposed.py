"""A problem whose answers differ in length and in their chance to be right."""

from __future__ import annotations

import torch

from polopt.algorithm import Algorithm
from polopt.lab.measure import training
from polopt.lab.policy import TabularPolicy
from polopt.lab.shapes import coin
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree, flat_gradient
from polopt.objectives import SequenceSum


def longer_is_surer(longest: int = 20, prompts: int = 1) -> TokenTree:
    """Answers of 1 to `longest` tokens, whose first token picks the length L; right with chance 0.95 sigmoid(L - 6)."""
    answers = [(k, *[0] * k) for k in range(longest)]
    chance = 0.95 * torch.sigmoid(torch.arange(1.0, longest + 1) - 6)
    return TokenTree(longest, answers, chance.double().expand(prompts, -1), prompts=prompts)


def learned_lengths(
    algorithm: Algorithm, *, rollouts: int, seed: int, step_size: float, prompts: int = 8
) -> dict[str, float]:
    """Trains a policy that picks all lengths alike on so many batches of rollouts, each of a group per prompt, and
    returns its accuracy, mean length and entropy, exact, and the answers sampled.

    Batches without rollouts come on top. Rows count alike, whatever their length.
    """
    tree = longer_is_surer(prompts=prompts)
    policy, algorithm = TabularPolicy(tree), algorithm.but(**{"objective.aggregate": SequenceSum(length=1)})
    drawn = 0
    for _, source in training(algorithm, tree, policy, rate=step_size, rows=prompts, seed=seed, draw=coin):
        drawn = source.drawn
        if drawn >= rollouts * prompts * algorithm.sampling.group_size:
            break
    p = tree.log_probabilities(policy).detach().exp().mean(0)
    return {
        "accuracy": tree.value(policy).item(),
        "length": float(p @ torch.arange(1, len(p) + 1, dtype=p.dtype)),
        "entropy": tree.entropy(policy).item(),
        "answers": float(drawn),
    }


def pull_on_length(algorithm: Algorithm, shortest: int, groups: int = 256) -> float:
    """Returns how far one step of gradient descent on a large batch moves the mean length, from a policy that picks
    all lengths from `shortest` on alike."""
    tree = longer_is_surer()
    policy, algorithm = TabularPolicy(tree), algorithm.but(**{"objective.aggregate": SequenceSum(length=1)})
    with torch.no_grad():
        policy.logits[tree.nodes[0, tree.start], : shortest - 1] = -30
    source = TreeSource(tree, policy, rows=groups * algorithm.sampling.group_size, draw=coin)
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    step = -flat_gradient(algorithm.objective(batch, policy.evaluate(batch)).loss, policy)
    probs = tree.log_probabilities(policy).exp()[0]
    return (step @ flat_gradient((probs * torch.arange(1, len(probs) + 1)).sum(), policy)).item()
