"""The optimum of a reward with a KL penalty on a tree, by backward induction."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree


@torch.no_grad()
def soft_optimum(tree: TokenTree, reference: TabularPolicy, beta: float) -> tuple[TabularPolicy, Tensor]:
    """Returns the maximiser of E R - beta KL(pi || reference) over the tree's policies, and its soft values [nodes],

        V(s) = beta log sum_a ref(a | s) exp((r(s, a) + V(s, a)) / beta),    pi(a | s) = ref(a | s) exp((r(s, a) +
        V(s, a) - V(s)) / beta),

    with V = 0 behind an answer's last token, on which the outcome of a tree without rewards of tokens is earned.

    Raises:
        ValueError: beta that is not positive.
    """
    if beta <= 0:
        raise ValueError(f"soft_optimum: beta must be > 0, found {beta}")
    leaves = tree.leaves()
    mask, tokens = leaves.mask, leaves.extras["tokens"]
    last = ops.last_decision(mask)
    reward = torch.where(last, tree.outcome.flatten()[:, None], 0) if tree.rewards is None else tree.rewards
    base = reference.table().double().masked_fill(~tree.choices, -torch.inf).log_softmax(-1)
    action, value = torch.zeros_like(base), base.new_zeros(len(base))
    for t in reversed(range(mask.shape[1])):
        at = mask[:, t]
        if not at.any():
            continue
        nodes = tree.nodes[at, t]
        after = torch.where(last[at, t], 0, value[tree.nodes[at, min(t + 1, mask.shape[1] - 1)]])
        action[nodes, tokens[at, t]] = reward[at, t] + after
        value[nodes] = beta * (base[nodes] + action[nodes] / beta).logsumexp(-1)
    policy = TabularPolicy(tree)
    policy.logits.copy_(torch.where(tree.choices, base + (action - value[:, None]) / beta, 0))
    return policy, value
