"""Questions of every difficulty, which may be thought about first."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.measure import training
from polopt.lab.shapes import coin
from polopt.lab.tree import TokenTree

THOUGHT = 0.95  # how likely a right end is right after a thought, whatever the difficulty


def questions(least: float = 0.0, most: float = 1.0, count: int = 20, needed: float = 0.3) -> tuple[TokenTree, Tensor]:
    """`count` questions of difficulties u [count] between `least` and `most`. The first of two tokens decides to think,
    1, or not, 0; the second must be 1, and is then right with probability 0.95 after a thought and 1 - u without.
    Questions beyond difficulty `needed` are of kind "hard", the others "easy"."""
    u = least + (most - least) * (torch.arange(count, dtype=torch.double) + 0.5) / count
    right = torch.stack([1 - u, torch.full_like(u, THOUGHT)], 1)
    table = torch.stack([torch.zeros_like(u), right[:, 0], torch.zeros_like(u), right[:, 1]], 1)
    kinds = ["hard" if x > needed else "easy" for x in u.tolist()]
    return TokenTree(2, [(0, 0), (0, 1), (1, 0), (1, 1)], table, count, kinds), u


class ThinkingPolicy(nn.Module):
    """Thinks with a log-odds that is linear in the difficulty, or with `free`, of its own for each question; ends right
    with a log-odds of its own after a thought and without, at first 0. At first it thinks with a log-odds of
    2 (u - 1/2)."""

    def __init__(self, tree: TokenTree, difficulty: Tensor, *, free: bool = False) -> None:
        super().__init__()
        self.tree, self.difficulty = tree, difficulty
        first = 2 * (difficulty - 0.5) if free else torch.tensor([-1.0, 2.0], dtype=torch.double)
        self.free = free
        self.think = nn.Parameter(first)
        self.end = nn.Parameter(torch.zeros(2, dtype=torch.double))

    def log_odds(self, difficulty: Tensor) -> Tensor:
        """The log-odds of thinking about questions of these difficulties; linear policies have one for any."""
        return self.think if self.free else self.think[0] + self.think[1] * difficulty

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates a batch of the tree's rows, identified by `extras["leaf"]`; `needs` beyond logp are not met."""
        leaf, start = experience.extras["leaf"], self.tree.start
        question, thought, right = leaf // 4, leaf % 4 // 2, leaf % 2
        first = (self.log_odds(self.difficulty)[question] * (2 * thought - 1)).sigmoid().log()
        second = (self.end[thought] * (2 * right - 1)).sigmoid().log()
        logp = torch.zeros(len(leaf), start + 2, dtype=torch.double)
        logp = logp.index_copy(1, torch.tensor([start, start + 1]), torch.stack([first, second], 1))
        return Evaluation(logp=logp, support=experience.support)


def taught(
    algorithm: Algorithm, tree: TokenTree, policy: ThinkingPolicy, *, steps: int, rate: float, seed: int = 0
) -> ThinkingPolicy:
    """Trains for so many steps on all questions, whose answers have reward 0 or 1. Returns the policy."""
    ways: dict[str, Any] = {"rate": rate, "rows": tree.prompts, "draw": coin, "seed": seed}
    for _ in itertools.islice(training(algorithm, tree, policy, **ways), steps):
        pass
    return policy


def frontier(difficulty: Tensor, share: float) -> float:
    """The best accuracy of all policies that think about this share of questions of these difficulties, and end right:
    the hardest ones are thought about."""
    count = len(difficulty)
    gain = (THOUGHT - (1 - difficulty)).sort(descending=True).values
    whole = int(share * count)
    rest = (share * count - whole) * gain[whole] if whole < count else gain.new_zeros(())
    return ((1 - difficulty).mean() + (gain[:whole].sum() + rest) / count).item()
