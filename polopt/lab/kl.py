"""What the KL estimators estimate, by listing every action."""

from __future__ import annotations

import dataclasses
from typing import get_args

import torch

from polopt import ops
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree, TreePolicy, flat_gradient
from polopt.objectives import ReferenceKL, TokenRatio


@dataclasses.dataclass(frozen=True)
class KLRow:
    """An estimator's expected value minus KL(policy || reference), and its expected gradient's relative distance
    from that of KL(policy || reference), of KL(reference || policy), and from zero (in units of the first)."""

    estimator: str
    ratio: bool
    on_policy: bool
    value_bias: float
    to_reverse: float
    to_forward: float
    to_zero: float


def three_actions() -> tuple[TokenTree, TabularPolicy, TabularPolicy, TabularPolicy]:
    """A bandit with three arms; a policy, a reference, and another policy that sampled."""
    tree = TokenTree.bandit([0.0, 0.0, 0.0])
    odds = ([0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4])
    policies = [TabularPolicy(tree).set_probabilities(torch.tensor(p, dtype=torch.double)) for p in odds]
    return tree, policies[0], policies[1], policies[2]


def kl_table(tree: TokenTree, policy: TreePolicy, reference: TreePolicy, behaviour: TreePolicy) -> list[KLRow]:
    """Every estimator, with and without the importance ratio, on the policy's samples and on `behaviour`'s.

    The tree's answers must be one token long.
    """
    reverse = flat_gradient(tree.kl(policy, reference), policy)
    forward = flat_gradient(tree.kl(reference, policy), policy)
    exact = tree.kl(policy, reference).item()
    rows = []
    for sampler in (policy, behaviour):
        odds = tree.log_probabilities(sampler).detach().exp().flatten() / tree.prompts
        leaves = tree.leaves()
        leaves = leaves.replace(
            rollout_logp=sampler.evaluate(leaves).logp.detach(), ref_logp=reference.evaluate(leaves).logp.detach()
        )
        for kind in get_args(ops.KLEstimator):
            for ratio in (None, TokenRatio()):
                part = ReferenceKL(value=kind, gradient=kind, ratio=ratio)
                terms = torch.where(leaves.mask, part(leaves, policy.evaluate(leaves)), 0).sum(1)
                slope = flat_gradient(odds @ terms, policy)
                # Off-policy the value is weighed as the gradient is; the part reports it unweighed.
                rows.append(
                    KLRow(
                        estimator=kind,
                        ratio=ratio is not None,
                        on_policy=sampler is policy,
                        value_bias=(odds @ terms).item() - exact,
                        to_reverse=((slope - reverse).norm() / reverse.norm()).item(),
                        to_forward=((slope - forward).norm() / forward.norm()).item(),
                        to_zero=(slope.norm() / reverse.norm()).item(),
                    )
                )
    return rows
