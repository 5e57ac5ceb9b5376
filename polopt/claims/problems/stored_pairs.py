"""A fixed set of labelled pairs, one a prompt, of answers whose worth a reward model knows but for some error."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.lab import LinearPolicy, TokenTree, TreeSource
from polopt.lab.preferences import paired

MODEL = "model"  # the signal that is the reward model's score


class StoredPairs(TreeSource):
    """A tree whose prompts have one labelled pair each: [prompts, 2] leaves, the preferred one first."""

    stored: Tensor

    def pairs(self, rows: int, tasks: Tensor | None = None) -> Experience:
        """Returns the stored pairs of these prompts, or of the next ones."""
        tasks = self.take(rows // 2) if tasks is None else tasks
        batch = self.leaf_table()[0][self.stored[tasks].flatten()]
        outcome = batch.outcome.new_tensor([1.0, 0.0]).repeat(len(tasks))
        group = torch.arange(len(tasks)).repeat_interleave(2)
        return batch.replace(rollout_logp=None, entropy=None, outcome=outcome, group=group)


@dataclasses.dataclass(frozen=True, eq=False)
class LabelledPairs:
    """Prompts with answers of known worth, the fine-tuned policy, a reward model's scores [prompts, answers], and one
    pair of the policy's answers a prompt with a Bradley-Terry label."""

    tree: TokenTree
    start: LinearPolicy
    scores: Tensor
    stored: Tensor

    def policy(self) -> LinearPolicy:
        """Returns a new policy with the fine-tuned one's weights."""
        policy = LinearPolicy(self.tree, self.start.features, weights=self.start.weights.detach())
        policy.values = torch.nn.Parameter(torch.zeros(len(self.tree.choices), dtype=torch.double))
        return policy

    def batch(self) -> Experience:
        """Returns all pairs, with the reward model's scores and the fine-tuned policy as the reference."""
        rows = paired(self.tree, self.start, [(int(w), int(r)) for w, r in self.stored])
        return rows.replace(extras={f"signal_{MODEL}": self.scores.flatten()[rows.extras["leaf"]]})

    def source(self, policy: LinearPolicy, **ways: Any) -> StoredPairs:
        """Returns a source of rollouts and of the pairs."""
        source = StoredPairs(self.tree, policy, signals={MODEL: self.scores}, **ways)
        source.stored = self.stored
        return source


def labelled(seed: int, prompts: int = 100, arms: int = 8, features: int = 20, error: float = 0.3) -> LabelledPairs:
    """Returns prompts with features, in which the worth of their answers is linear; a uniform policy that is linear in
    them too; and labels that follow the worth by Bradley-Terry, so that those of close answers are almost random."""
    g = torch.Generator().manual_seed(seed)
    inputs = torch.randn(prompts, features, generator=g, dtype=torch.double) / features**0.5
    worth = inputs @ (1.5 * torch.randn(features, arms, generator=g, dtype=torch.double))
    tree = TokenTree.bandit(worth.tolist())
    leaves = tree.leaves()
    at = torch.zeros(len(tree.choices), dtype=torch.long).index_put((tree.nodes[leaves.mask],), leaves.group)
    both = torch.rand(prompts, arms, generator=g).argsort(1)[:, :2]
    gap = worth.gather(1, both[:, :1]) - worth.gather(1, both[:, 1:])
    first = torch.rand(prompts, 1, generator=g, dtype=torch.double) < gap.sigmoid()
    ordered = torch.where(first, both, both.flip(1)) + arms * torch.arange(prompts)[:, None]
    scores = worth + error * torch.randn(prompts, arms, generator=g, dtype=torch.double)
    return LabelledPairs(tree, LinearPolicy(tree, inputs[at]), scores, ordered)
