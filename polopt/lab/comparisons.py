"""Arms that are compared with each other by a table of probabilities, which need not come from any reward."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.problems import preference_game
from polopt.rewards import Preference

CYCLE = tuple(map(tuple, preference_game().preference.tolist()))


class TablePreference(Preference):
    """P(i, j) = table[answer of i][answer of j], of the answers of one tree by their number.

    table: [answers][answers], by default that of `problems.preference_game`.
    """

    table: tuple[tuple[float, ...], ...] = CYCLE

    reads = frozenset({"extras.leaf"})

    def forward(self, experience: Experience, first: Tensor, second: Tensor) -> Tensor:
        table = torch.tensor(self.table, dtype=torch.double)
        answer = experience.extras["leaf"] % len(table)
        return table[answer[first], answer[second]]


def bradley_terry(table: Tensor, steps: int = 2000) -> Tensor:
    """Returns the rewards [answers], of mean 0, whose Bradley-Terry probabilities are the likeliest for comparisons of
    every two answers, each as often: what a reward model would learn."""
    reward = torch.zeros(len(table), dtype=torch.double)
    for _ in range(steps):  # the loss is convex, and its curvature at most half the number of answers
        margin = torch.sigmoid(reward[:, None] - reward[None])
        reward += 2 / len(table) * (table - margin).sum(1)
    return reward - reward.mean()


def compared_arms() -> tuple[TokenTree, TabularPolicy]:
    """Returns the answers of `problems.preference_game` as arms, whose outcomes are the Bradley-Terry rewards, and the
    uniform policy."""
    tree = TokenTree.bandit(bradley_terry(preference_game().preference).tolist())
    return tree, TabularPolicy(tree)
