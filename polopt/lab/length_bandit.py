"""A bandit over answer lengths: the length that an answer needs to be right differs between easy and hard questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.lab.measure import training
from polopt.lab.shapes import LinearPolicy, coin
from polopt.lab.tree import TokenTree
from polopt.objectives import SequenceSum

LENGTHS, EASY, HARD = 20, 7, 3
DIFFICULTY_WEIGHT = 0.3  # the weight of a difficulty's own logits, beside those that all questions share


def success() -> Tensor:
    """Returns the probability [questions, lengths] that an answer of each length is right.

    It is 0.97 from 3 tokens on for the easy questions, 0.95 sigmoid(length - 12) for the hard ones.
    """
    length = torch.arange(1, LENGTHS + 1, dtype=torch.double)
    easy, hard = 0.97 * (length >= 3).double(), 0.95 * torch.sigmoid(length - 12)
    return torch.stack([easy] * EASY + [hard] * HARD)


def length_bandit() -> tuple[TokenTree, LinearPolicy]:
    """Returns ten questions, seven of kind "easy", the others "hard", with answers of 1 to 20 tokens, and the uniform
    policy.

    An answer's outcome is its probability of being right, from which `shapes.coin` draws 0 or 1.
    """
    answers = [(k, *[0] * k) for k in range(LENGTHS)]
    kinds = ["easy"] * EASY + ["hard"] * HARD
    tree = TokenTree(LENGTHS, answers, success(), EASY + HARD, kinds)
    hard = torch.tensor([kind == "hard" for kind in kinds]).double()
    features = torch.stack([torch.ones_like(hard), DIFFICULTY_WEIGHT * (1 - hard), DIFFICULTY_WEIGHT * hard], 1)
    # All questions share their weights but for a small part of each difficulty; tokens after the first are certain.
    first = tree.nodes[:: len(answers), tree.start]
    return tree, LinearPolicy(tree, torch.zeros(len(tree.choices), 3).double().index_copy(0, first, features))


class Thrift(NamedTuple):
    """Exact success rates and expected lengths after training, mean over seeds.

    easy, hard: probability of a right answer at the end.
    easy_length, hard_length: expected tokens of an answer at the end.
    hard_lowest: the lowest success rate on hard questions during training, of one value every 50 batches.
    """

    easy: float
    hard: float
    easy_length: float
    hard_length: float
    hard_lowest: float


def thrift(
    algorithm: Algorithm, *, steps: int = 1500, rate: float = 0.3, seeds: int | Sequence[int] = 4, groups: int = 8
) -> Thrift:
    """Trains the bandit's policy by gradient descent on `steps` batches of `groups` questions, and returns its
    measurements. seeds: their number, or the seeds themselves."""
    found = []
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        tree, policy = length_bandit()
        lowest = 1.0
        for batch, _ in enumerate(_learning(algorithm, tree, policy, rate, groups, seed), start=1):
            if batch % 50 == 0:
                lowest = min(lowest, rightness(tree, policy)[1].item())
            if batch == steps:
                break
        probs = tree.log_probabilities(policy).detach().exp()
        length = probs @ torch.arange(1.0, LENGTHS + 1, dtype=torch.double)
        found.append([*rightness(tree, policy).tolist(), length[:EASY].mean(), length[EASY:].mean(), lowest])
    return Thrift(*torch.tensor(found, dtype=torch.double).mean(0).tolist())


def rightness(tree: TokenTree, policy: LinearPolicy) -> Tensor:
    """Mean success rates [2] of the easy and the hard questions."""
    right = (tree.log_probabilities(policy).detach().exp() * tree.outcome).sum(1)
    return torch.stack([right[:EASY].mean(), right[EASY:].mean()])


def _learning(
    algorithm: Algorithm, tree: TokenTree, policy: LinearPolicy, rate: float, groups: int, seed: int
) -> Iterator[object]:
    """Yields batches in which every answer has the same weight whatever its length, with outcomes 0 or 1."""
    algorithm = algorithm.but(**{"objective.aggregate": SequenceSum(length=1)})
    return training(algorithm, tree, policy, rate=rate, rows=groups, seed=seed, draw=coin)
