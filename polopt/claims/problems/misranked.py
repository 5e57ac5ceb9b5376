"""Preference pairs that a reference policy ranks as it happens, and training on them with exact gradients."""

from __future__ import annotations

import dataclasses

import torch

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.policy import TabularPolicy
from polopt.lab.preferences import paired
from polopt.lab.tree import TokenTree
from polopt.metrics import RankedPairs

PROMPTS, LENGTH, TOKENS = 60, 4, 3


@dataclasses.dataclass(frozen=True, eq=False)
class MisrankedPairs:
    """One pair of answers of `LENGTH` tokens a prompt, and the reference, of which nothing tells the better one."""

    policy: TabularPolicy
    batch: Experience

    def ranked(self) -> RankedPairs:
        with torch.no_grad():
            return RankedPairs.of_experience(self.batch, self.policy.evaluate(self.batch))

    def descend(self, algorithm: Algorithm, step_size: float) -> float:
        """Takes one gradient step on the loss, and returns the loss before it."""
        loss = algorithm.objective(self.batch, self.policy.evaluate(self.batch)).loss
        (gradient,) = torch.autograd.grad(loss, self.policy.logits)
        with torch.no_grad():
            self.policy.logits.sub_(step_size * PROMPTS * gradient)
        return float(loss.detach())


def misranked(algorithm: Algorithm, seed: int, spread: float = 8.0) -> MisrankedPairs:
    """Returns pairs whose reference has random logits of that standard deviation: margins of tens of nats, as those of
    long answers are."""
    tree = TokenTree.full(TOKENS, LENGTH, lambda prompt, answer: 0.0, prompts=PROMPTS)
    policy, reference = (TabularPolicy(tree, spread=spread, seed=seed) for _ in range(2))
    g = torch.Generator().manual_seed(seed)
    answers = len(tree.answers)
    pairs = []
    for prompt in range(PROMPTS):
        chosen, rejected = (torch.randperm(answers, generator=g)[:2] + prompt * answers).tolist()
        pairs.append((chosen, rejected))
    batch = paired(tree, reference, pairs)
    return MisrankedPairs(policy, algorithm.compute_advantages(algorithm.sampling.mark(batch)))
