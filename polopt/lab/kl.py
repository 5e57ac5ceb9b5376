"""Bias of KL estimators and of their gradients, by enumeration of all actions."""

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
    """Bias of one KL estimator's value and relative distances of its expected gradient from exact gradients.

    estimator: the estimator.
    ratio: whether an importance ratio weighs it.
    on_policy: whether the samples are the policy's own.
    value_bias: expected value minus KL(policy || reference).
    to_reverse: distance from the gradient of KL(policy || reference), relative to its norm, as the next two are.
    to_forward: distance from the gradient of KL(reference || policy).
    to_zero: norm of the expected gradient.
    """

    estimator: str
    ratio: bool
    on_policy: bool
    value_bias: float
    to_reverse: float
    to_forward: float
    to_zero: float


def three_actions() -> tuple[TokenTree, TabularPolicy, TabularPolicy, TabularPolicy]:
    """Returns a bandit with three arms, a policy, a reference, and a behaviour policy."""
    tree = TokenTree.bandit([0.0, 0.0, 0.0])
    probs = ([0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4])
    policies = [TabularPolicy(tree).set_probabilities(torch.tensor(p, dtype=torch.double)) for p in probs]
    return tree, policies[0], policies[1], policies[2]


def kl_table(tree: TokenTree, policy: TreePolicy, reference: TreePolicy, behaviour: TreePolicy) -> list[KLRow]:
    """Returns a row for every estimator, with and without the importance ratio, on samples of the policy and of
    `behaviour`.

    The tree's answers must be one token long.
    """
    reverse = flat_gradient(tree.kl(policy, reference), policy)
    forward = flat_gradient(tree.kl(reference, policy), policy)
    exact = tree.kl(policy, reference).item()
    rows = []
    for sampler in (policy, behaviour):
        probs = tree.log_probabilities(sampler).detach().exp().flatten() / tree.prompts
        leaves = tree.leaves()
        leaves = leaves.replace(
            rollout_logp=sampler.evaluate(leaves).logp.detach(), ref_logp=reference.evaluate(leaves).logp.detach()
        )
        for kind in get_args(ops.KLEstimator):
            for ratio in (None, TokenRatio()):
                part = ReferenceKL(value=kind, gradient=kind, ratio=ratio)
                terms = torch.where(leaves.mask, part(leaves, policy.evaluate(leaves)), 0).sum(1)
                gradient = flat_gradient(probs @ terms, policy)
                # Off-policy the value is weighed like the gradient; the part reports it unweighed.
                rows.append(
                    KLRow(
                        estimator=kind,
                        ratio=ratio is not None,
                        on_policy=sampler is policy,
                        value_bias=(probs @ terms).item() - exact,
                        to_reverse=((gradient - reverse).norm() / reverse.norm()).item(),
                        to_forward=((gradient - forward).norm() / forward.norm()).item(),
                        to_zero=(gradient.norm() / reverse.norm()).item(),
                    )
                )
    return rows
