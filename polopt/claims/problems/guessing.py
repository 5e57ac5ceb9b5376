"""A bandit in which guessing is rewarded at once and reasoning only with practice."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.measure import train
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree

GUESS, REASON = 0, 1  # the third arm is noise, which is never right


class Learned(NamedTuple):
    """At the end: share of answers that were reasoned, that are right by a guess, and that are right; means."""

    reasoned: float
    flawed: float
    right: float


def guess_or_reason(
    algorithm: Algorithm, *, steps: int = 1500, rate: float = 0.1, copies: int = 8, seed: int = 0
) -> Learned:
    """A guess is right with probability 1/2. Reasoning is right with probability sigmoid(c), where c rises from -2 by
    0.01 with every attempt, up to 3. The policy begins with logits 1 for the guess, 0 for reasoning and 0.5 for noise.
    Answers are "0", "1" and "2". The copies are prompts that share nothing: runs side by side, each at this rate."""
    tree = TokenTree.bandit([[0.5, 0.0, 0.0]] * copies)
    policy = TabularPolicy(tree)
    with torch.no_grad():
        policy.logits.copy_(torch.tensor([1.0, 0.0, 0.5]).expand_as(policy.logits))
    skill = torch.full((copies,), -2.0, dtype=torch.double)

    def draw(batch: Experience, generator: torch.Generator) -> Tensor:
        prompt, arm = batch.extras["leaf"] // 3, batch.extras["leaf"] % 3
        chance = torch.where(arm == REASON, skill[prompt].sigmoid(), 0.5 * (arm == GUESS))
        skill.index_add_(0, prompt[arm == REASON], torch.full_like(chance[arm == REASON], 0.01)).clamp_(max=3)
        return torch.bernoulli(chance, generator=generator)

    train(algorithm, tree, policy, steps=steps, rate=rate * copies, rows=copies, seed=seed, draw=draw)
    probs = tree.log_probabilities(policy).detach().exp()
    reasoned, flawed = probs[:, REASON], probs[:, GUESS] / 2
    right = flawed + reasoned * skill.sigmoid()
    return Learned(*(x.mean().item() for x in (reasoned, flawed, right)))
