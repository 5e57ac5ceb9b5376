"""What the tests of methods share: batches of the lab's problems, gradients, exact comparison."""

from __future__ import annotations

from typing import Any

import torch

import polopt as po
from polopt.lab import TokenTree, TreeSource


def batch_of(
    tree: TokenTree,
    policy: Any,
    group: int = 4,
    prompts: int = 6,
    behaviour: Any = None,
    needs: frozenset[str] = frozenset(),
) -> po.Experience:
    needs = needs | {"value", "extras.greedy_reward"}
    rows = group * prompts
    source = TreeSource(tree, policy, rows=rows, seed=8, behaviour=behaviour, reference=policy, needs=needs)
    return source.rollout(prompts, group, po.Support())


def slope(algorithm: po.Algorithm, batch: po.Experience, policy: Any) -> torch.Tensor:
    said = policy.evaluate(batch, algorithm.objective.all_evaluates)
    return torch.autograd.grad(algorithm.objective(algorithm.judge(batch), said).loss, policy.logits)[0]


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    assert b.abs().max() > 1e-6
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
