"""Recommendations that should depend on what is needed, and do depend on the phrasing."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt import ops
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree


def recommender(
    needs: int = 5, phrases: int = 4, items: int = 20, *, by_need: float = 2.0, by_phrase: float = 1.0, seed: int = 0
) -> tuple[TokenTree, TabularPolicy]:
    """A prompt for each need and phrase, need by need; an answer is one item. All rewards are 0. The policy prefers
    items by the need, with logits of standard deviation `by_need`, and by the phrase, anew for each need."""
    kinds = [f"need {n}" for n in range(needs) for _ in range(phrases)]
    tree = TokenTree.bandit(torch.zeros(needs * phrases, items).tolist(), kinds=kinds)
    policy, g = TabularPolicy(tree), torch.Generator().manual_seed(seed)
    need_logits = by_need * torch.randn(needs, 1, items, generator=g, dtype=torch.double)
    phrase_logits = by_phrase * torch.randn(needs, phrases, items, generator=g, dtype=torch.double)
    with torch.no_grad():
        policy.logits.copy_((need_logits + phrase_logits).view(-1, items))
    return tree, policy


def divergence(tree: TokenTree, policy: TabularPolicy) -> float:
    """Mean over kinds of the Jensen-Shannon divergence between the answers to a kind's prompts, in bits."""
    p = tree.log_probabilities(policy).detach().exp()
    return _shared(p, ops.numbered(tree.kinds))


def dependence(tree: TokenTree, policy: TabularPolicy) -> float:
    """Mutual information between answers and kinds, in bits: what the answer depends on besides chance and phrase."""
    p = tree.log_probabilities(policy).detach().exp()
    kind = torch.tensor(ops.numbered(tree.kinds))
    means = torch.stack([p[kind == k].mean(0) for k in kind.unique()])
    return _shared(means, [0] * len(means))


def _shared(p: Tensor, groups: list[int]) -> float:
    """Mean over groups of the entropy of the mean minus the mean entropy, in bits."""
    number, entropy = torch.tensor(groups), lambda x: -torch.special.xlogy(x, x).sum(-1)
    found = [entropy(p[number == g].mean(0)) - entropy(p[number == g]).mean() for g in number.unique()]
    return torch.stack(found).mean().item() / math.log(2)
