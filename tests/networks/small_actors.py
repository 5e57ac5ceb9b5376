"""A policy of two matrices, whose outputs can be computed by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.networks import Space
from polopt.policies.network import Action


class LinearGaussian(nn.Module):
    """a ~ N(W s, exp(2 l)), with two dimensions and three numbers in an observation."""

    space = Space(3, dimensions=2)
    device = torch.device("cpu")
    normaliser = None

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).double())
        self.log_std = nn.Parameter(torch.tensor([-0.5, 0.3]).double())

    def density(self, mean: Tensor, action: Tensor) -> Tensor:
        z = (action - mean) / self.log_std.exp()
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def law(self, observation: Tensor) -> tuple[Tensor, ...]:
        return (observation @ self.weight.T,)

    def propose(self, observation: Tensor, generator: Generator) -> Action:
        return self.propose_of(self.law(observation), generator)

    def propose_of(self, law: tuple[Tensor, ...], generator: Generator) -> Action:
        (mean,) = law
        action = mean + self.log_std.exp() * torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        return Action(action, self.density(mean, action))

    def evaluate(self, experience: Experience, needs: Iterable[str] = (), *, top: int = 0) -> Evaluation:
        observation = experience.extras["observation"][:, :-1]
        return Evaluation(logp=self.density(observation @ self.weight.T, experience.extras["action"]))

    def own_parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.named_parameters())

    def frozen(self) -> Any:
        import copy

        return copy.deepcopy(self).requires_grad_(False)


def batch(rows: int = 7, seed: int = 0) -> Experience:
    """Random transitions, of which some terminated and some were cut."""
    draw = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64)  # noqa: E731
    ends = torch.randint(3, (rows, 1), generator=draw)
    return Experience(
        mask=torch.ones(rows, 1, dtype=torch.bool),
        reward=normal(rows, 1),
        terminated=ends == 0,
        truncated=ends == 1,
        group=torch.arange(rows),
        advantage=torch.ones(rows, 1, dtype=torch.float64),
        extras={"observation": normal(rows, 2, 3), "action": normal(rows, 1, 2)},
    )
