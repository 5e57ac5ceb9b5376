"""Batches of rollouts and demonstrations, and their losses in plain numbers."""

from __future__ import annotations

from typing import Any

import torch

import polopt as po
from polopt.lab import TabularPolicy, TreeSource
from polopt.lab.problems import digits


def dealt(algorithm: po.Algorithm, prompts: int = 6, seed: int = 8) -> tuple[po.Experience, TabularPolicy]:
    """A batch by the algorithm\'s own sampling from an older policy, and the policy that learns."""
    tree, policy = digits()
    older = TabularPolicy(tree, spread=0.9, seed=7, critic=True)
    rows = prompts * getattr(algorithm.sampling, "group", 1)
    needs = frozenset({"value", "entropy"})
    source = TreeSource(tree, policy, rows=rows, seed=seed, behaviour=older, reference=older, needs=needs)
    return algorithm.sampling(source), policy


def halves(batch: po.Experience) -> tuple[po.Experience, po.Experience]:
    """The rollouts, and the others, as batches of their own."""
    return batch[~batch.is_demonstration], batch[batch.is_demonstration]


def nll(batch: po.Experience, policy: TabularPolicy, weight: Any = lambda p: torch.ones_like(p)) -> torch.Tensor:
    """Gradient of -mean_t w(p) logp over the tokens of a batch, p without gradient."""
    logp = policy.evaluate(batch).logp[batch.mask]
    return torch.autograd.grad(-(weight(logp.detach().exp()) * logp).mean(), policy.logits)[0]
