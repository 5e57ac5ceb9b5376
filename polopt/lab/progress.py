"""Measures what a policy has learned and what that cost, for effects of learning; and has the problems they share."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.lab.measure import training
from polopt.lab.policy import LinearPolicy, TabularPolicy
from polopt.lab.tree import TokenTree

# Optimiser steps after which a run that waits for a goal gives up.
MOST_STEPS = 2000


def uneven(
    seed: int,
    tasks: int = 16,
    tokens: int = 3,
    choices: int = 4,
    hardest: float = 0.005,
    easiest: float = 0.9,
    features: int = 64,
) -> tuple[TokenTree, TabularPolicy]:
    """Returns tasks whose success rates at the start go from `hardest` to `easiest`, evenly in the logit.

    Each has one right answer of `tokens` tokens out of `choices`, drawn by `seed`. Every token of the right answer has
    the same probability, success^(1 / tokens); the others share the rest.
    features: the number D of random features of a `LinearPolicy`, N(0, 1 / D), by which tasks share parameters; 0 gives
        every node logits of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(choices, (tasks, tokens), generator=generator).tolist()
    tree = TokenTree.full(choices, tokens, lambda p, answer: float(list(answer) == keys[p]), prompts=tasks)
    ends = torch.logit(torch.tensor([hardest, easiest], dtype=torch.double))
    success = torch.linspace(float(ends[0]), float(ends[1]), tasks, dtype=torch.double).sigmoid()
    policy = TabularPolicy(tree, critic=True)
    leaves = tree.leaves()
    right = tree.outcome.argmax(1) + torch.arange(tasks) * len(tree.answers)
    token = success ** (1 / tokens)
    with torch.no_grad():
        for task in range(tasks):
            at = leaves.mask[right[task]]
            nodes, actions = tree.nodes[right[task], at], leaves.extras["tokens"][right[task], at]
            policy.logits[nodes, actions] = torch.log(token[task] / (1 - token[task]) * (choices - 1))
    if not features:
        return tree, policy
    start = policy.table().detach()
    shared = torch.randn(len(start), features, generator=generator, dtype=torch.double) / features**0.5
    return tree, LinearPolicy(tree, shared, start=start)


def learned(
    algorithm: Algorithm,
    problem: tuple[TokenTree, TabularPolicy],
    *,
    steps: int,
    step_size: float,
    seed: int,
    rows: int | None = None,
    epochs: int = 1,
    goal: float | None = None,
    **source_settings: Any,
) -> dict[str, float]:
    """Trains on the problem by gradient descent, and returns what was learned and spent.

        success, entropy     of the policy at the end, exact; entropy in nats per answer
        mean success         over all batches: it is higher for who learns sooner
        answers, tokens      sampled
        steps                batches learned from

    rows: prompts of each batch; None takes all of the problem.
    goal: training ends at this success; what was spent is NaN if `steps` batches do not reach it. None takes all steps.
    """
    tree, policy = problem
    values = list[float]()
    ways = {"rate": step_size, "rows": rows or tree.prompts, "epochs": epochs, "seed": seed, **source_settings}
    drawn = decided = 0
    for _, source in itertools.islice(training(algorithm, tree, policy, **ways), min(steps, MOST_STEPS)):
        drawn, decided = source.drawn, source.decided
        values.append(tree.value(policy).item())
        if goal is not None and values[-1] >= goal:
            break
    reached = goal is None or values[-1] >= goal
    return {
        "success": values[-1],
        "mean success": sum(values) / len(values),
        "entropy": tree.entropy(policy).item(),
        "answers": float(drawn) if reached else math.nan,
        "tokens": float(decided) if reached else math.nan,
        "steps": float(len(values)) if reached else math.nan,
    }


def raised(problem: tuple[TokenTree, TabularPolicy], by: float = 1.0) -> tuple[TokenTree, TabularPolicy]:
    """Returns the problem with all outcomes raised by the same amount: no policy is better or worse for it."""
    tree, policy = problem
    return tree.paying(tree.outcome + by), policy
