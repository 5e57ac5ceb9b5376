"""Two attempts at every question: a tree of an answer, and a second one that has seen the first."""

from __future__ import annotations

import copy
import functools
import math

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.lab.policy import LinearPolicy, TabularPolicy
from polopt.lab.tree import TokenTree, TreePolicy
from polopt.metrics import Correction, correction


class TwoTurns(TokenTree):
    """Answers (first, second) of one token each, turns 0 and 1; each has reward 1 if it is the question's right one."""

    def __init__(self, questions: int, choices: int) -> None:
        pairs = [(a, b) for a in range(choices) for b in range(choices)]
        super().__init__(choices, pairs, lambda q, pair: [float(y == q % choices) for y in pair], questions)

    @functools.cached_property
    def _leaves(self) -> Experience:
        leaves = super()._leaves
        turn = torch.where(leaves.mask, leaves.mask.cumsum(1) - 1, -1)
        return leaves.replace(turn=turn, extras={"answer_reward": leaves.reward})

    def attempts(self, policy: TreePolicy) -> Tensor:
        """[2, 2] chances, with gradient: wrong or right at first, by wrong or right at second; mean over questions."""
        p = self.log_probabilities(policy).exp().flatten() / self.prompts
        rewards = self._leaves.reward[self._leaves.mask].view(-1, 2).long()
        return p.new_zeros(4).index_add(0, 2 * rewards[:, 0] + rewards[:, 1], p).view(2, 2)

    def delta(self, policy: TreePolicy) -> Tensor:
        """Returns how much more often the second attempt is right, with gradient."""
        chances = self.attempts(policy)
        return chances[0, 1] - chances[1, 0]

    def correction(self, policy: TreePolicy) -> Correction:
        """The changes by second attempts, exactly."""
        first, second = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
        return correction(first, second, self.attempts(policy).detach().flatten())

    def first_kl(self, policy: TreePolicy, other: TreePolicy) -> float:
        """KL(policy || other) of the first attempt alone, mean over questions."""
        with torch.no_grad():
            whole = [self.log_probabilities(p).exp() for p in (policy, other)]
            p, q = (chances.view(self.prompts, self.vocabulary, -1).sum(2) for chances in whole)
            return (p * (p / q).log()).sum(1).mean().item()


def copier(
    questions: int = 4, choices: int = 4, known: float = 0.5, copies: float = 0.9
) -> tuple[TwoTurns, TabularPolicy, TabularPolicy]:
    """A policy that answers rightly with chance `known` and then mostly gives the same answer again. Returns the tree,
    the policy and a copy of it for a reference."""
    tree = TwoTurns(questions, choices)
    policy = TabularPolicy(tree)
    first, second = tree.nodes[:, tree.start], tree.nodes[:, tree.start + 1]
    right = torch.arange(questions).repeat_interleave(choices**2) % choices
    first_answer = tree.leaves().extras["tokens"][:, tree.start]
    with torch.no_grad():
        policy.logits[first, right] = math.log(known / (1 - known) * (choices - 1))
        policy.logits[second, first_answer] = math.log(copies / (1 - copies) * (choices - 1))
    return tree, policy, copy.deepcopy(policy)


def sharing_copier(seed: int, questions: int = 8, features: int = 32) -> tuple[TwoTurns, LinearPolicy]:
    """The same, with logits that are linear in random features, by which attempts and questions share parameters."""
    tree, policy, _ = copier(questions)
    start, generator = policy.table().detach(), torch.Generator().manual_seed(seed)
    shared = torch.randn(len(start), features, generator=generator, dtype=torch.double) / features**0.5
    return tree, LinearPolicy(tree, shared, start=start)
