"""A verifier that errs, on trees: every answer with either verdict, so that expectations are sums."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree, flat_gradient


def verdicts(tree: TokenTree, rho0: Tensor, rho1: Tensor) -> tuple[Experience, Tensor]:
    """Every answer twice, with reward 0 and with reward 1, and the probability of that verdict [rows]. rho0, rho1:
    [prompts, answers] how often a wrong answer has reward 1, and a right one 0; stored as the signals `false_positive`
    and `false_negative`, the truth as `true`."""
    right = tree.outcome >= 1
    reward_probability = torch.where(right, 1 - rho1, rho0).flatten()
    leaves = tree.leaves()
    rows = torch.arange(len(leaves)).repeat(2)
    verdict = torch.arange(2).repeat_interleave(len(leaves)).double()
    noted = {"false_positive": rho0, "false_negative": rho1, "true": right.double()}
    extras = {f"signal_{name}": value.double().flatten()[rows] for name, value in noted.items()}
    batch = leaves[rows].replace(outcome=verdict, reward=verdict, extras=extras)
    return batch, torch.cat([1 - reward_probability, reward_probability])


def expected_push(algorithm: Algorithm, policy: TabularPolicy, tree: TokenTree, rho0: Tensor, rho1: Tensor) -> Tensor:
    """E[sum_t A_t grad log pi] over prompts, answers and verdicts, flat; exact where credit looks at single rows."""
    batch, chance = verdicts(tree, rho0, rho1)
    advantage = algorithm.with_advantages(batch).advantage
    logp = torch.where(batch.mask, policy.evaluate(batch).logp, 0)
    weight = chance * logp.sum(1).exp().detach() / tree.prompts
    return flat_gradient((weight[:, None] * advantage * logp).sum(), policy)


def learned(
    algorithm: Algorithm, tree: TokenTree, rho0: Tensor, rho1: Tensor, *, steps: int = 1000, rate: float = 2.0
) -> TabularPolicy:
    """The uniform policy after so many steps along `expected_push`."""
    policy = TabularPolicy(tree)
    for _ in range(steps):
        push = expected_push(algorithm, policy, tree, rho0, rho1)
        with torch.no_grad():
            policy.logits.add_(rate * push.view_as(policy.logits))
    return policy
