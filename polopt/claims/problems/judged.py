"""Answers with rewards in many features, a policy in few of them, and a reference that hardly ever gives the best."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polopt.lab.pair_sources import JudgedAnswers, labelled
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree


class LogLinearPolicy(TabularPolicy):
    """pi(y) ~ ref(y) exp(features(y) @ weights) over the answers of a bandit, so that answers share parameters.

    features: [V, D]. start: [1, V] the reference's logits. weights begin at 0.
    """

    def __init__(self, tree: TokenTree, features: Tensor, start: Tensor) -> None:
        super().__init__(tree)
        del self.logits
        self.features, self.start = features, start
        self.weights = nn.Parameter(features.new_zeros(features.shape[1]))

    def table(self) -> Tensor:
        """Returns the logits of the only node, [1, V]."""
        return self.start + (self.features @ self.weights)[None]


def fitted_reward(features: Tensor, pairs: Tensor, penalty: float, steps: int = 20) -> Tensor:
    """Returns the reward [V], linear in features, whose Bradley-Terry probabilities are the likeliest for labelled
    pairs, with penalty / 2 |weights|^2, by Newton's method."""
    apart = features[pairs[:, 0]] - features[pairs[:, 1]]
    weights = features.new_zeros(features.shape[1])
    for _ in range(steps):
        p = torch.sigmoid(apart @ weights)
        slope = apart.T @ (1 - p) - penalty * weights
        curvature = (apart * (p * (1 - p))[:, None]).T @ apart + penalty * torch.eye(len(weights), dtype=p.dtype)
        weights = weights + torch.linalg.solve(curvature, slope)
    return features @ weights


def judged_answers(
    seed: int, answers: int = 256, known: int = 40, pairs: int = 500, thin: float = 1.0, size: float = 2.0
) -> tuple[JudgedAnswers, Tensor]:
    """Returns a problem whose true reward is linear in `known` random features, of standard deviation `size`, and these
    features [answers, known]; the proxy is fitted to the data in all of them.

    thin: the reference's logits are noise less `thin` times the reward in units of its standard deviation.
    """
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(answers, known, generator=g, dtype=torch.double)
    reward = features @ torch.randn(known, generator=g, dtype=torch.double)
    reward = size * (reward - reward.mean()) / reward.std()
    start = 0.5 * torch.randn(answers, generator=g, dtype=torch.double) - thin * reward / size
    golden = torch.sigmoid(reward[:, None] - reward)
    tree = TokenTree.bandit([0.0] * answers)
    reference = TabularPolicy(tree).set_probabilities(start.softmax(0))
    drawn = torch.multinomial(start.softmax(0), 2 * pairs, replacement=True, generator=g)
    data = labelled(drawn.view(pairs, 2), golden, g)
    proxy = fitted_reward(features, data, penalty=1.0)
    return JudgedAnswers(tree, reference, golden, torch.sigmoid(proxy[:, None] - proxy), data), features
