"""Problems and measurements for claims about the shape of the advantage."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.measure import LeafGradient, train
from polopt.lab.policy import LinearPolicy, TabularPolicy
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree, TreePolicy


def norms_in_one_batch(algorithm: Algorithm, rates: list[float]) -> list[float]:
    """Returns |expected gradient| of each of several prompts of given success rates that share every batch.

    The expectation is exact: the numbers of right answers are independent binomial counts, all of them enumerated.
    """
    group = algorithm.sampling.group_size
    tree = TokenTree.bandit([[1.0, 0.0]] * len(rates))
    probs = torch.tensor([[p, 1 - p] for p in rates], dtype=torch.double)
    policy = TabularPolicy(tree).set_probabilities(probs)
    leaf_table, _ = TreeSource(tree, policy, rows=group).leaf_table()
    probe = LeafGradient(algorithm, tree, policy, leaf_table.support)
    counts = torch.arange(group + 1)
    chances = [torch.distributions.Binomial(group, probs[i, 0]).log_prob(counts).exp() for i in range(len(rates))]
    leaf_gradients, weights = [], []
    for right in itertools.product(*((c > 1e-6).nonzero().flatten().tolist() for c in chances)):
        wrong = [(torch.arange(group) >= k).long() + 2 * i for i, k in enumerate(right)]
        leaf_gradients.append(probe(algorithm.compute_advantages(leaf_table[torch.cat(wrong)])))
        weights.append(torch.stack([c[k] for c, k in zip(chances, right, strict=True)]).prod())
    mean = torch.stack(weights) @ probe.vjp(torch.stack(leaf_gradients))
    return mean.view(len(rates), 2).norm(dim=1).tolist()


def coin(batch: Experience, generator: torch.Generator) -> Tensor:
    """Samples rewards 1 or 0, with an answer's outcome as the probability of 1."""
    return torch.bernoulli(batch.outcome, generator=generator)


def two_routes(copies: int) -> tuple[TokenTree, TabularPolicy]:
    """Returns a direct answer worth 0.4 and a search with 16 outcomes of which one is worth 0.9.

    Both routes are equally likely at first, so that a search is worth 0.056. The copies are prompts without shared
    parameters, as independent runs.
    """
    answers = [(0,), *[(1, i) for i in range(16)]]
    worth = {(0,): 0.4, (1, 0): 0.9}
    tree = TokenTree(16, answers, lambda prompt, answer: worth.get(answer, 0.0), copies)
    policy = TabularPolicy(tree)
    return tree, policy


def stuck(seed: int, contexts: int = 32, arms: int = 6) -> tuple[TokenTree, LinearPolicy]:
    """Returns a linear contextual bandit, and a policy that takes arm 0 with probability 0.98 in every context.

    Arm 0 is right in about one of `arms` contexts, so that most groups are unanimous, and most of those wrong.
    """
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(contexts, arms, generator=generator, dtype=torch.double)
    truth = torch.randn(arms, arms, generator=generator, dtype=torch.double)
    tree = TokenTree.bandit(nn.functional.one_hot((features @ truth).argmax(1), arms).double().tolist())
    weights = torch.zeros(arms + 1, arms, dtype=torch.double)
    weights[-1, 0] = math.log(0.98 / 0.02 * (arms - 1))  # on a constant feature
    return tree, LinearPolicy(tree, nn.functional.pad(features, (0, 1), value=1.0), weights=weights)


def steps_to(
    goal: float, algorithm: Algorithm, tree: TokenTree, policy: TreePolicy, *, rate: float, most: int, seed: int = 0
) -> int:
    """Returns the steps of gradient descent, each on all prompts, until the policy's value is `goal`, at most
    `most`."""
    algorithm = algorithm.but()
    for step in range(1, most + 1):
        train(algorithm, tree, policy, steps=1, rate=rate, rows=tree.prompts, seed=1000 * seed + step)
        if tree.value(policy) >= goal:
            return step
    return most


def noisy_labels(algorithm: Algorithm, start: float, flips: float, rate: float, seeds: int, first: int = 0) -> float:
    """True success after 100 steps on 20 prompts of 4 answers, mean of `seeds` seeds from `first` on.

    Ten easy prompts, of success `start` at first, have labels that are wrong with probability `flips`; ten of success
    0.3 at first have true labels.
    """

    def draw(batch: Experience, generator: torch.Generator) -> Tensor:
        easy = batch.extras["leaf"] < 10 * 4
        wrong = (torch.rand(len(batch), generator=generator) < flips) & easy
        return torch.where(wrong, 1 - batch.outcome, batch.outcome)

    found = 0.0
    for seed in range(first, first + seeds):
        tree = TokenTree.bandit([[1.0, 0.0, 0.0, 0.0]] * 20)
        rates = torch.tensor([[start]] * 10 + [[0.3]] * 10, dtype=torch.double)
        policy = TabularPolicy(tree).set_probabilities(torch.cat([rates, (1 - rates).expand(-1, 3) / 3], 1))
        train(algorithm, tree, policy, steps=100, rate=rate, rows=20, seed=seed, draw=draw)
        found += tree.value(policy).item() / seeds
    return found


def windfall_bandit(algorithm: Algorithm, seed: int, rate: float = 2.0) -> tuple[float, float]:
    """Returns the success after 60 steps on 4 plain prompts, and on 4 prompts with large random rewards.

    In the latter any answer, right or wrong, has a reward 100 larger with probability 0.15.
    """

    def draw(batch: Experience, generator: torch.Generator) -> Tensor:
        heavy = torch.tensor([kind == "windfall" for kind in batch.extras["kind"]])
        return batch.outcome + 100.0 * ((torch.rand(len(batch), generator=generator) < 0.15) & heavy)

    tree = TokenTree.bandit([[1.0] + [0.0] * 7] * 8, kinds=["plain"] * 4 + ["windfall"] * 4)
    policy = TabularPolicy(tree)
    train(algorithm, tree, policy, steps=60, rate=rate, rows=8, seed=seed, draw=draw)
    right = tree.log_probabilities(policy).detach().exp()[:, 0]
    return right[:4].mean().item(), right[4:].mean().item()
