"""Pools of tasks of every difficulty, for claims about task selection and rollout allocation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.lab.measure import training
from polopt.lab.policy import TabularPolicy
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree
from polopt.metrics import mixed_groups


def pool(tasks: int, seed: int) -> Tensor:
    """Samples success rates [tasks] from Beta(0.3, 0.8): many near 0, some near 1."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch._standard_gamma(torch.full((tasks,), x).double(), generator=generator) for x in (0.3, 0.8))
    return (a / (a + b)).clamp(1e-6, 1 - 1e-6)


def solved_at(p: Tensor) -> tuple[TokenTree, TabularPolicy]:
    """Returns a bandit with a right and a wrong arm for each task, and a policy that solves task i with probability
    p_i.

    Each task has parameters of its own.
    """
    tree = TokenTree.bandit([[1.0, 0.0]] * len(p))
    return tree, TabularPolicy(tree).set_probabilities(torch.stack([p, 1 - p], 1))


def graded(tasks: int, seed: int) -> tuple[TokenTree, TabularPolicy]:
    """Returns the tasks and policy of `solved_at` for the rates of a pool."""
    return solved_at(pool(tasks, seed))


def solved_in_two(p: Tensor) -> tuple[TokenTree, TabularPolicy]:
    """Returns tasks of two tokens out of three, of which only 0 0 is right, and a policy that gives each 0
    sqrt(p_i)."""
    tree = TokenTree.full(3, 2, lambda prompt, answer: float(answer == (0, 0)), prompts=len(p))
    policy = TabularPolicy(tree)
    at = tree.nodes.view(len(p), len(tree.answers), -1)[:, 0, tree.start : tree.start + 2]
    with torch.no_grad():
        policy.logits[at, 0] = (torch.logit(p.sqrt()) + math.log(2))[:, None].expand_as(at)
    return tree, policy


def many_answers(tasks: int, seed: int = 0) -> tuple[TokenTree, TabularPolicy]:
    """Returns tasks with four right and four wrong answers of unequal probabilities; right ones sum to p ~ U(0.05,
    1)."""
    generator = torch.Generator().manual_seed(seed)
    p = 0.05 + 0.95 * torch.rand(tasks, 1, generator=generator, dtype=torch.double)
    right, wrong = (1.5 * torch.randn(2, tasks, 4, generator=generator, dtype=torch.double)).softmax(-1)
    tree = TokenTree.bandit([[1.0] * 4 + [0.0] * 4] * tasks)
    return tree, TabularPolicy(tree).set_probabilities(torch.cat([p * right, (1 - p) * wrong], 1))


def success(tree: TokenTree, policy: TabularPolicy) -> float:
    """Mean success rate over tasks; outcomes are 0 or 1."""
    with torch.no_grad():
        return tree.value(policy).item()


def mixed_share(counts: Tensor, p: Tensor) -> float:
    """Expected fraction of groups with right and wrong answers."""
    return (1 - p**counts - (1 - p) ** counts).mean().item()


def value_after(
    algorithm: Algorithm, tree: TokenTree, policy: TabularPolicy, *, steps: int, rate: float, seed: int
) -> float:
    """Returns the policy's value after `steps` batches in which each task comes once; the policy is trained in
    place."""
    loop = training(algorithm.but(), tree, policy, rate=rate, rows=tree.prompts, seed=seed)
    for _ in itertools.islice(loop, steps):
        pass
    return success(tree, policy)


def until(
    algorithm: Algorithm,
    tree: TokenTree,
    policy: TabularPolicy,
    measure: Callable[[TokenTree, TabularPolicy], float],
    goal: float,
    *,
    limit: int,
    rate: float,
    prompts: int,
    seed: int,
) -> tuple[int, int]:
    """Returns the batches of `prompts` prompts, and the rollouts, until the measure reaches the goal, at most `limit`
    batches."""
    steps = drawn = 0
    loop = training(algorithm.but(), tree, policy, rate=rate, rows=prompts, seed=seed)
    for _, source in itertools.islice(loop, limit):
        steps, drawn = steps + 1, source.drawn
        if measure(tree, policy) >= goal:
            break
    return steps, drawn


def mixed_found(
    algorithm: Algorithm, *, tasks: int = 400, prompts: int = 16, batches: int = 150, seed: int = 0
) -> tuple[float, float]:
    """Returns the fractions of sampled groups with right and wrong answers before and after the success rates jump.

    The `tasks` success rates have logits N(-1, 3^2), constant in each phase; between the phases each logit changes by
    4, up or down.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = -1 + 3 * torch.randn(tasks, generator=generator, dtype=torch.double)
    jump = 8 * torch.randint(0, 2, (tasks,), generator=generator) - 4
    tree, policy = solved_at(logits.sigmoid())
    algorithm = algorithm.but()
    source, shares = TreeSource(tree, policy, rows=prompts * algorithm.sampling.group_size, seed=seed), []
    for now in (logits, logits + jump):
        p = now.sigmoid()
        policy.set_probabilities(torch.stack([p, 1 - p], 1))
        source.refresh()
        found = [algorithm.sampling(source) for _ in range(batches)]
        shares.append(sum(mixed_groups(batch.outcome, batch.group).item() for batch in found) / batches)
    return shares[0], shares[1]
