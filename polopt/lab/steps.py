"""Token-by-token sampling on a tree, with the interface for language models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.lab.tree import TokenTree, TreePolicy


class TreeSteps:
    """Exact next-token logits of a policy at every prefix of a tree, as `policies.sampler_steps.Steps`.

    A context is a prompt, in tokens. `ended` returns whether an answer ends with a token.
    """

    def __init__(self, tree: TokenTree, policy: TreePolicy) -> None:
        self.tree = tree
        leaves = tree.leaves()
        with torch.no_grad():
            self.logits = policy.evaluate(leaves, frozenset({"logits"})).logits
        mask, tokens = leaves.mask, leaves.extras["tokens"]
        # For each node, a leaf and column that represent it; after each choice the next node, -1 if the answer ends.
        nodes = len(tree.choices)
        row, column = mask.nonzero(as_tuple=True)
        at = tree.nodes[row, column]
        self.where = torch.zeros(nodes, 2, dtype=torch.long)
        self.where[at] = torch.stack([row, column], 1)
        self.after = torch.full((nodes, tree.vocabulary), -1)
        goes_on = column + 1 < tree.start + mask.sum(1)[row]
        here, there = (row[goes_on], column[goes_on]), (row[goes_on], column[goes_on] + 1)
        self.after[tree.nodes[here], tokens[here]] = tree.nodes[there]
        first = torch.arange(tree.prompts) * len(tree.answers)
        self.roots = {tuple(tokens[leaf, : tree.start].tolist()): int(tree.nodes[leaf, tree.start]) for leaf in first}

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        self.node = torch.tensor([self.roots[tuple(c)] for c in contexts]).repeat_interleave(torch.tensor(copies))
        return self._node_logits()

    def ended(self, token: Tensor) -> Tensor:
        return self.after[self.node, token] < 0

    def step(self, token: Tensor) -> Tensor:
        self.node = self.after[self.node, token]
        return self._node_logits()

    def keep(self, rows: Tensor) -> None:
        self.node = self.node[rows]

    def fork(self, rows: Tensor) -> None:
        self.node = torch.cat([self.node, self.node[rows]])

    def _node_logits(self) -> Tensor:
        row, column = self.where[self.node].unbind(1)
        return self.logits[row, column]
