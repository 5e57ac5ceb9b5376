"""Rewards that are sometimes wrong, on the prompts whose answers disagree."""

from __future__ import annotations

from typing import NamedTuple

import torch

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.measure import train
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.sampling.filters import RandomSelect

PROMPTS, ARMS = 16, 8


class Flipped(RandomSelect):
    """Turns outcomes of 0 and 1 round by chance, with probability `flip`, on the tree's answers from number `first`
    on."""

    flip: float
    first: int = 0

    def forward(self, experience: Experience) -> Experience:
        wrong = (self.uniform(experience) < self.flip) & (experience.extras["leaf"] >= self.first)
        return experience.replace(outcome=torch.where(wrong, 1 - experience.outcome, experience.outcome))


def dispersed(seed: int) -> tuple[TokenTree, TabularPolicy]:
    """16 prompts with one right arm of 8 each: on the first 8 the policy hesitates between two arms, one of them
    right, on the others it is uniform."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.randint(ARMS, (PROMPTS,), generator=generator)
    other = (right + 1 + torch.randint(ARMS - 1, (PROMPTS,), generator=generator)) % ARMS
    tree = TokenTree.bandit(torch.nn.functional.one_hot(right, ARMS).tolist())
    policy, sure = TabularPolicy(tree), torch.arange(PROMPTS // 2)
    with torch.no_grad():
        policy.logits[sure, right[sure]] = policy.logits[sure, other[sure]] = 3.0
    return tree, policy


class NoisyAccuracy(NamedTuple):
    """final: share of right answers at the end. batches: until it was 0.9 (all of them if never). Means over seeds."""

    final: float
    batches: float


def accuracy(
    algorithm: Algorithm, *, rate: float, flip: float, batches: int = 60, seeds: int = 10, first: int = 0
) -> NoisyAccuracy:
    """True accuracy on `dispersed` after gradient descent on batches of all prompts, some outcomes turned round.

    A mean over `seeds` seeds from `first` on.
    """
    final, reached = [], []
    for seed in range(first, first + seeds):
        tree, policy = dispersed(seed)
        flipped = Flipped(flip=flip, first=PROMPTS // 2 * ARMS, seed=seed)
        filtered = algorithm.but({"sampling.select": [flipped]})
        values = train(
            filtered,
            tree,
            policy,
            steps=batches,
            rate=rate,
            rows=PROMPTS,
            seed=seed,
            watch=lambda tree=tree, policy=policy: tree.value(policy).item(),  # type: ignore[misc]
        )
        final.append(values[-1])
        reached.append(next((i for i, v in enumerate(values, start=1) if v >= 0.9), batches))
    return NoisyAccuracy(sum(final) / seeds, sum(reached) / seeds)
