"""Denoising as a chain of Gaussian decisions, whose final distribution is known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest
from polopt.support import Density


class GaussianChain(nn.Module):
    """A linear Gaussian chain: x_0 ~ N(0, I) in D dimensions, then x_{t+1} ~ N(mu_t(x_t), std_t^2 I) with
    mu_t(x) = x + dt_t (W_t x + b_t).

    These are Euler steps of a flow with noise whose velocity is linear at every step. The parameters are `matrix` [T,
    D, D] and `shift` [T, D], both 0 at first. `final` returns the exact distribution of the final point.

    std, dt: one number for each step.
    """

    def __init__(self, dimensions: int, std: Sequence[float], dt: Sequence[float]) -> None:
        super().__init__()
        if len(std) != len(dt) or not std or min(*std, *dt) <= 0:
            raise ValueError(f"GaussianChain: std and dt need one positive number a step, found {std} and {dt}")
        steps = len(std)
        self.std: Tensor
        self.dt: Tensor
        self.register_buffer("std", torch.tensor(std, dtype=torch.double))
        self.register_buffer("dt", torch.tensor(dt, dtype=torch.double))
        self.matrix = nn.Parameter(torch.zeros(steps, dimensions, dimensions, dtype=torch.double))
        self.shift = nn.Parameter(torch.zeros(steps, dimensions, dtype=torch.double))

    def means(self, states: Tensor) -> Tensor:
        """Maps the states before each step [B, T, D] to the means of the next ones [B, T, D]."""
        velocity = torch.einsum("tij,btj->bti", self.matrix, states) + self.shift
        return states + self.dt[:, None] * velocity

    @torch.no_grad()
    def sample(self, rows: int, generator: torch.Generator) -> Experience:
        """Samples `rows` chains.

        The extras are `state` and `action` [B, T, D], before and after each step, the sampler's `mean` [B, T, D], `std`
        and `dt` [B, T], and `point` [B, D], the final point.
        """
        T, D = self.shift.shape
        noise = torch.randn(rows, T + 1, D, dtype=torch.double, generator=generator)
        path = [noise[:, 0]]
        for t in range(T):
            mean = path[t] + self.dt[t] * (path[t] @ self.matrix[t].T + self.shift[t])
            path.append(mean + self.std[t] * noise[:, t + 1])
        states = torch.stack(path, 1)
        extras = {
            "state": states[:, :-1],
            "action": states[:, 1:],
            "std": self.std.expand(rows, T),
            "dt": self.dt.expand(rows, T),
            "point": states[:, -1],
        }
        batch = Experience(
            mask=torch.ones(rows, T, dtype=torch.bool),
            terminated=torch.ones(rows, dtype=torch.bool),
            truncated=torch.zeros(rows, dtype=torch.bool),
            support=Density(),
            horizon=T,
            extras=extras,
        )
        evaluation = self.evaluate(batch, frozenset({"extras.mean"}))
        return batch.replace(rollout_logp=evaluation.logp, extras={"mean": evaluation.extras["mean"]})

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Returns the log-density of each step, summed over its dimensions, and `extras["mean"]` if `needs` contains
        it."""
        mean = self.means(experience.extras["state"])
        z = (experience.extras["action"] - mean) / self.std[:, None]
        logp = -(z.square() / 2 + self.std.log()[:, None] + math.log(2 * math.pi) / 2).sum(-1)
        return Evaluation(
            logp=logp, support=experience.support, extras={"mean": mean} if "extras.mean" in needs else {}
        )

    def final(self) -> tuple[Tensor, Tensor]:
        """Mean [D] and covariance [D, D] of the final point, with gradient."""
        D = self.shift.shape[1]
        one = torch.eye(D, dtype=torch.double)
        mean, covariance = torch.zeros(D, dtype=torch.double), one
        for t, dt in enumerate(self.dt):
            step = one + dt * self.matrix[t]
            mean = step @ mean + dt * self.shift[t]
            covariance = step @ covariance @ step.T + self.std[t] ** 2 * one
        return mean, covariance

    def expected_bump(self, centre: Tensor, width: float) -> Tensor:
        """E exp(-|x - centre|^2 / (2 width^2)) of the final point, with gradient."""
        mean, covariance = self.final()
        spread = covariance + width**2 * torch.eye(len(mean), dtype=torch.double)
        off = mean - centre
        scale = (width ** (2 * len(mean)) / torch.linalg.det(spread)).sqrt()
        return scale * torch.exp(-off @ torch.linalg.solve(spread, off) / 2)


class ChainSource:
    """A source of chains whose outcome is a function of the final point: `reward(points [B, D]) -> [B]`.

    rows: rows of one optimiser batch.
    """

    size = 1

    def __init__(self, chain: GaussianChain, reward: Callable[[Tensor], Tensor], *, rows: int, seed: int = 0) -> None:
        self.chain, self.reward, self.rows = chain, reward, rows
        self.generator = torch.Generator().manual_seed(seed)

    def refresh(self) -> None:
        """Does nothing, since the source stores nothing of the policy."""

    def take(self, count: int) -> Tensor:
        """Returns zeros [count], the number of the only context."""
        return torch.zeros(count, dtype=torch.long)

    def rollout(self, request: RolloutRequest) -> Experience:
        """Samples a group of independent chains for each task."""
        tasks, group = request.tasks, request.group
        batch = self.chain.sample(len(group), self.generator)
        outcome = self.reward(batch.extras["point"])
        return batch.replace(outcome=outcome, reward=outcome, group=group, extras={"index": tasks[group]})
