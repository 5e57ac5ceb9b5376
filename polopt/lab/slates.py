"""Small problems of slates: all slates of a context, and exact values, means and variances of estimates."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from numpy.typing import NDArray

from polopt.metrics import LoggedDecisions, OffPolicyEstimator

Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class SlateProblem:
    """Slates of L positions with one of A items each, drawn independently of each other in X contexts.

    behaviour, target: [X, L, A] probabilities. own: [X, L, A] the reward of an item at its position. after: [A, A] what
    is added to an item's reward by the item above it.
    """

    behaviour: Numbers
    target: Numbers
    own: Numbers
    after: Numbers

    def all_slates(self) -> tuple[LoggedDecisions, Numbers]:
        """Returns every slate of every context, and its probability under the behaviour policy [N]."""
        X, L, A = self.own.shape
        items = np.array(list(itertools.product(range(A), repeat=L)))
        places = np.arange(L)
        context = np.repeat(np.arange(X), len(items))
        items = np.tile(items, (X, 1))
        cells = [x[context[:, None], places, items] for x in (self.behaviour, self.target, self.own)]
        reward = cells[2].copy()
        reward[:, 1:] += self.after[items[:, :-1], items[:, 1:]]
        table = LoggedDecisions(np.full(len(items), L), reward, np.log(cells[0]), np.log(cells[1]))
        return table, cells[0].prod(1) / X

    def value(self) -> float:
        """Returns the target policy's expected reward of a slate."""
        table, chance = self.all_slates()
        return float(chance @ (np.exp(table.log_weights()[:, -1]) * table.returns(1.0)))

    def estimated(self, metric: OffPolicyEstimator) -> tuple[float, float]:
        """Returns the exact mean and variance of an estimate from one slate."""
        table, chance = self.all_slates()
        terms = metric.terms(table).influence()
        mean = float(chance @ terms)
        return mean, float(chance @ (terms - mean) ** 2)


def slates(seed: int, *, positions: int = 3, interaction: float = 0.0) -> SlateProblem:
    """Returns a random problem of two contexts and three items. interaction: the size of `after`."""
    draw = np.random.default_rng(seed)
    shape = 2, positions, 3
    behaviour, target = (draw.dirichlet(np.full(3, 2.0), shape[:2]) for _ in range(2))
    behaviour = 0.7 * behaviour + 0.1
    return SlateProblem(behaviour, target, draw.normal(size=shape), interaction * draw.normal(size=(3, 3)))
