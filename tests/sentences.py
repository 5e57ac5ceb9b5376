"""What the tests of methods share: batches of the lab's problems, gradients, exact comparison."""

from __future__ import annotations

from typing import Any

import torch

import polopt as po
from polopt.lab import TokenTree, TreeSource
from polopt.policies.vocabulary import REDUCTIONS
from polopt.sampling.parts import RolloutRequest

OUTPUTS = frozenset({"entropy", "logits", "value", "extras.candidate_logp", "extras.hidden"})
OUTPUTS |= {f"extras.{name}" for name in REDUCTIONS}


def batch_of(
    tree: TokenTree,
    policy: Any,
    group: int = 4,
    prompts: int = 6,
    behaviour: Any = None,
    needs: frozenset[str] = frozenset(),
    sampling: po.sampling.Sampling | None = None,
) -> po.Experience:
    """Groups of rollouts, or what a sampling part makes of the tree, with all that a tree can say."""
    needs = needs | {"value", "entropy", "prev_logp", "extras.greedy_reward", "extras.prompt_logp"}
    rows = group * prompts
    source = TreeSource(tree, policy, rows=rows, seed=8, behaviour=behaviour, reference=policy, needs=needs)
    return (
        source.rollout(RolloutRequest(source.take(prompts), group, po.Support()))
        if sampling is None
        else sampling(source)
    )


def unknown(algorithm: po.Algorithm, batch: po.Experience) -> set[str]:
    """What the algorithm reads that neither the tree's batch nor a policy on the tree can say; nothing, for most."""
    filled = {k for k, v in vars(batch).items() if v is not None} | {f"extras.{k}" for k in batch.extras}
    filled |= {"advantage", "extras.advantages"}  # credit's
    filled |= {name for select in algorithm.select for name in select.all_writes}
    return (algorithm.active_fields("reads") - filled) | (algorithm.active_fields("policy_outputs") - OUTPUTS)


def slope(algorithm: po.Algorithm, batch: po.Experience, policy: Any) -> torch.Tensor:
    """The gradient of the batch as it is: the sampling part has had its turn."""
    judged = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    said = policy.evaluate(judged, algorithm.objective.required_outputs)
    return torch.autograd.grad(algorithm.objective(judged, said).loss, policy.logits)[0]


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    assert b.abs().max() > 1e-6
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
