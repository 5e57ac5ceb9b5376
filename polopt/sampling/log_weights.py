"""Chances of the transitions of a log, by the trajectories that they belong to."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polopt.part import Part


class LogWeights(Part):
    """`weights(columns) -> [N]` of the transitions of a log, which are drawn in proportion; columns as of
    `sampling.spanning`."""

    def forward(self, columns: Mapping[str, Tensor]) -> Tensor:
        raise NotImplementedError


class TrajectoryWeights(LogWeights):
    """exp(x / alpha) of the trajectory that a transition belongs to, x from 0, of the worst one, to 1, of the best: its
    undiscounted return G or, with `advantage`, G - V(s_0), with V the linear least-squares fit of the returns by the
    first observations. All are 1 where the trajectories do not differ.

    alpha: temperature; small ones draw from the best trajectory alone.

    Source: Hong et al. 2023, arXiv 2306.13085.
    """

    alpha: float = 0.1
    advantage: bool = True

    def setup(self) -> None:
        if not self.alpha > 0:
            raise ValueError(f"sampling.TrajectoryWeights: alpha must be > 0, found {self.alpha}")

    def forward(self, columns: Mapping[str, Tensor]) -> Tensor:
        first, number = trajectories(columns["following"])
        score = returns(columns, number, len(first))
        if self.advantage:
            state = columns["observation"][first].double()
            state = torch.cat([state, torch.ones(len(first), 1, dtype=torch.float64)], 1)
            # By the pseudo-inverse: constant entries of an observation repeat the intercept.
            score = score - state @ (torch.linalg.pinv(state) @ score)
        low, high = score.aminmax()
        if high - low <= 1e-9 * max(1.0, float(score.abs().max())):
            return torch.ones(len(number), dtype=torch.float64)
        return ((score - low) / (high - low) / self.alpha).exp()[number]


def trajectories(following: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the row of each trajectory's first transition, [M], and each row's trajectory, [N], from 0 on.

    following: [N] as of `sampling.spanning`.
    """
    count = len(following)
    after = (torch.arange(count) + following) % count
    begins = torch.ones(count, dtype=torch.bool)
    begins[after[following > 0]] = False
    first = begins.nonzero().flatten()
    number, place, own = torch.full((count,), -1), first, torch.arange(len(first))
    while len(place):
        number[place] = own
        going = following[place] > 0
        place, own = after[place[going]], own[going]
    return first, number


def returns(columns: Mapping[str, Tensor], number: Tensor, count: int) -> Tensor:
    """Returns the undiscounted returns [M] of the trajectories, float64."""
    return torch.zeros(count, dtype=torch.float64).index_add(0, number, columns["reward"].double())


def positive_variance(score: Tensor) -> float:
    """Returns the mean of (G - mean G)_+^2: how much better than the mean the better trajectories are.

    Source: Hong et al. 2023, arXiv 2306.13085.
    """
    return float((score - score.mean()).clamp(min=0).square().mean())


class WeightedLog:
    """Draws rows of a log in proportion to weights.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """

    def __init__(self, columns: Mapping[str, Tensor], weights: LogWeights) -> None:
        found: Tensor = weights(columns)
        if not found.isfinite().all() or found.min() < 0 or not found.sum() > 0:
            raise ValueError(f"{weights!r}: weights must be finite and >= 0, with a sum > 0")
        self._ends = found.double().cumsum(0)
        first, number = trajectories(columns["following"])
        self.metrics = {
            "log/trajectories": float(len(first)),
            "log/positive_variance": positive_variance(returns(columns, number, len(first))),
            "log/effective_share": float(found.sum().square() / found.square().sum() / len(found)),
        }

    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        """Returns rows [M], with replacement."""
        at = torch.rand(rows, dtype=torch.float64, generator=generator) * self._ends[-1]
        return torch.searchsorted(self._ends, at, right=True).clamp(max=len(self._ends) - 1)
