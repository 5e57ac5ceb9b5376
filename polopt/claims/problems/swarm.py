"""Several learners on one problem, each of which can do a part of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.backends import LocalPool
from polopt.experience import Experience
from polopt.lab.measure import training
from polopt.lab.policy import TabularPolicy
from polopt.lab.problems import contexts
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree, flat_gradient
from polopt.methods.sapo_swarm import as_drawn, shared
from polopt.objectives import Surrogate, TokenRatio, Unclipped
from polopt.support import PLAIN


def knowing(task: int | None, tasks: int = 6, arms: int = 8, unknown: float = 0.02) -> TabularPolicy:
    """A policy for `tasks` contexts of `arms` arms, one of them right. It is right with probability 0.9 in the context
    `task`, `unknown` in all others."""
    _tree, policy = contexts(tasks, arms)
    right = torch.full((tasks,), unknown, dtype=torch.double)
    if task is not None:
        right[task] = 0.9
    probs = ((1 - right) / (arms - 1))[:, None].expand(tasks, arms).clone()
    probs[torch.arange(tasks), torch.arange(tasks) % arms] = right
    return policy.set_probabilities(probs)


def cumulative(
    build: Callable[[str, str], Algorithm],
    *,
    seed: int,
    step_size: float,
    nodes: int = 8,
    rounds: int = 40,
    idle: int = 0,
) -> float:
    """Exact value of the nodes that learn, mean over them and rounds. Node i solves task i modulo 6 from the
    start; nodes take turns, and each batch is 8 groups. build: from a node's name and its pool's. The last `idle` nodes
    publish without learning, and solve none."""
    pool, total = f"lab.swarm {seed}", 0.0
    LocalPool(name=pool).clear()
    policies = [knowing(i % 6 if i < nodes - idle else None) for i in range(nodes)]
    loops = []
    for i, policy in enumerate(policies):
        rate = step_size if i < nodes - idle else 0.0
        settings = {"rows": 8, "rate": rate, "seed": 100 * seed + i}
        loops.append(training(build(f"n{i}", pool), policy.tree, policy, **settings))  # type: ignore[arg-type]
    learners = policies[: nodes - idle]
    for _ in range(rounds):
        for loop in loops:
            next(loop)
        total += sum(p.tree.value(p).item() for p in learners) / (len(learners) * rounds)
    LocalPool(name=pool).clear()
    return total


def pull_of_shared() -> tuple[Tensor, Tensor, Tensor]:
    """The exact policy gradient of a bandit; and what another policy's answers pull on average, all of them listed,
    with the log-probabilities of their writer, and with the reader's own."""
    tree, reader = contexts(2, arms=5)
    writer = TabularPolicy(tree, spread=1.0, seed=1)
    with torch.no_grad():
        reader.logits.copy_(TabularPolicy(tree, spread=1.0, seed=2).logits)
    objective, gradients = Surrogate(ratio=TokenRatio(), trust=Unclipped()), []
    probs = tree.log_probabilities(writer).detach().exp() / tree.prompts
    published = shared(TreeSource(tree, writer, rows=1), _each(tree, writer), exactly=True)
    source = TreeSource(tree, reader, rows=1)
    for corrected in (True, False):
        gradient = torch.zeros_like(flat_gradient(tree.value(reader), reader))
        for one, weight in zip(published, probs.flatten().tolist(), strict=True):
            answers = one.ids if corrected else one.answers
            row = source.import_answers(torch.tensor([one.task]), [answers], PLAIN)  # type: ignore[list-item]
            row = as_drawn(row, one.logp or []) if corrected else row
            row = row.replace(advantage=torch.where(row.mask, row.outcome[:, None], 0))
            gradient -= weight * flat_gradient(objective(row, reader.evaluate(row)).loss, reader)
        gradients.append(gradient)
    return tree.gradient(reader), gradients[0], gradients[1]


def _each(tree: TokenTree, policy: TabularPolicy) -> Experience:
    """Every answer once, each a group of its own."""
    leaf_table = TreeSource(tree, policy, rows=1).leaf_table()[0]
    return leaf_table.replace(group=torch.arange(len(leaf_table)))
