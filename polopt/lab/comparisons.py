"""Arms that are compared with each other by a table of probabilities, which need not come from any reward."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.rewards import Preference

# P[i, j]: arm i is preferred to arm j. A cycle; its Nash equilibrium is (0.3, 0.3, 0.4).
CYCLE = ((0.5, 0.9, 0.2), (0.1, 0.5, 0.8), (0.8, 0.2, 0.5))


class TablePreference(Preference):
    """P(i, j) = table[answer of i][answer of j], of the answers of one tree by their number.

    table: [answers][answers].
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
    """Returns the arms of `CYCLE`, whose outcomes are the Bradley-Terry rewards, and the uniform policy."""
    reward = bradley_terry(torch.tensor(CYCLE, dtype=torch.double))
    tree = TokenTree.bandit(reward.tolist())
    return tree, TabularPolicy(tree)


def exploitability(policy: Tensor, table: tuple[tuple[float, ...], ...] = CYCLE) -> float:
    """Returns how often the best answer to a policy [answers] wins, above 1/2: 0 at a Nash equilibrium alone."""
    return (torch.tensor(table, dtype=torch.double) @ policy.double()).max().item() - 0.5
