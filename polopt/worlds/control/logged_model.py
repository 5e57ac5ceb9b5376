"""A world that is a log: each step leads where the nearest logged one led, and costs to leave what was logged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from polopt.worlds.control.world import StepWorld

NEEDED = ("observation", "action", "reward", "next_observation", "terminated")
CHUNK = 1024  # rows whose distances to all others are computed at once


class DensityRegion:
    """The points whose density among given ones is not below that of the `outside` least dense of these:

        q(x) = mean_i exp(-|x - x_i|^2 / (2 bandwidth^2)),    inside where q(x) >= the quantile `outside` of the q(x_i)

    points: x_i, [M, D]. bandwidth: sigma, in the points' units. outside: a share, in [0, 1).
    """

    def __init__(self, points: Tensor, bandwidth: float, outside: float) -> None:
        if not bandwidth > 0 or not 0 <= outside < 1:
            raise ValueError(
                f"DensityRegion: need bandwidth > 0 and outside in [0, 1), found {bandwidth} and {outside}"
            )
        self.points, self.bandwidth = points, bandwidth
        own = self.density(points)
        self.least = torch.quantile(own.double(), outside).to(own)
        self.own_inside = own >= self.least

    def density(self, points: Tensor) -> Tensor:
        """Returns q [N] of points [N, D]."""
        found = [
            (-torch.cdist(some, self.points).square() / (2 * self.bandwidth**2)).exp().mean(-1)
            for some in points.split(CHUNK)
        ]
        return torch.cat(found)

    def inside(self, points: Tensor) -> Tensor:
        """Tests points [N, D], [N] bool."""
        return self.density(points) >= self.least


class LoggedModel(StepWorld):
    """An estimated process: in a state s an action a leads where the logged (s_i, a_i) that is nearest to it led, with
    that one's reward and costs. Distances are of numbers scaled to [-1, 1] by their logged range. An episode begins in
    the first state of a logged one, and terminates where the nearest transition did.

    With `outside` a step that leaves the region where (s, a) is dense in the log (`DensityRegion`), or whose nearest
    transition is not in it, stays where it is from then on to the end of the episode, each step with the reward
    `penalty`. info["cost"], [N, 1 + K], has 1 for these steps, 0 for others, and the log's own costs behind it.

    log: an .npz file of transitions in the order of their episodes, or the columns themselves: observation and
        next_observation [M, D], action [M, A], reward, terminated and, if there, truncated [M], cost [M] or [M, K].
    outside: share of the logged (s, a) to leave out of the region; None has none.
    bandwidth: of the region, in scaled numbers.
    penalty: reward outside; None is the least logged one less the range of rewards.

    The actions' bounds are the logged ones'. Source: Yan et al. 2025, arXiv 2505.16242, and the authors' program.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        log: str | Mapping[str, Any],
        outside: float | None = 0.05,
        bandwidth: float = 0.5,
        penalty: float | None = None,
        horizon: int = 20,
        device: str = "cpu",
    ) -> None:
        found = _columns(log)
        observation, action = found["observation"], found["action"]
        self.low, self.high = (
            torch.cat([getattr(x, end)(0).values for x in (observation, action)]) for end in ("min", "max")
        )
        D = observation.shape[1]
        self.single_observation_space = Box(-np.inf, np.inf, (D,), np.float32)
        self.single_action_space = Box(self.low[D:].numpy(), self.high[D:].numpy(), dtype=np.float32)
        settings = {"log": log, "outside": outside, "bandwidth": bandwidth, "penalty": penalty}
        super().__init__(num_envs, horizon, settings, device)
        self.log = {name: column.to(self.device) for name, column in found.items()}
        self.low, self.high = self.low.to(self.device), self.high.to(self.device)
        over = self.log["terminated"] | self.log["truncated"]
        first = torch.cat([over.new_ones(1), over[:-1]])
        self.starts = self.log["observation"][first]
        self.points = self.scaled(self.log["observation"], self.log["action"])
        self.region = None if outside is None else DensityRegion(self.points, bandwidth, outside)
        reward = self.log["reward"]
        self.penalty = float(2 * reward.min() - reward.max()) if penalty is None else penalty
        self.state = self.starts[:1].expand(num_envs, -1).clone()
        self.left = torch.zeros(num_envs, dtype=torch.bool, device=self.device)

    def scaled(self, observation: Tensor, action: Tensor) -> Tensor:
        """Returns (s, a) [N, D + A], scaled to [-1, 1]; numbers that are always the same in the log are left."""
        point, size = torch.cat([observation, action], -1), self.high - self.low
        return torch.where(size > 0, 2 * (point - self.low) / size - 1, point)

    def begin(self, rows: Tensor) -> None:
        drawn = torch.randint(len(self.starts), (len(rows),), generator=self.generator, device=self.device)
        self.state[rows], self.left[rows] = self.starts[drawn], False

    def observe(self) -> Tensor:
        return self.state.clone()

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        point = self.scaled(self.state, action.to(self.state))
        nearest = torch.cdist(point, self.points).argmin(-1)
        if self.region is not None:
            self.left |= ~self.region.inside(point) | ~self.region.own_inside[nearest]
        stays = self.left[:, None]
        self.state = torch.where(stays, self.state, self.log["next_observation"][nearest])
        costs = torch.where(stays, 0, self.log["cost"][nearest])
        self.cost = torch.cat([stays.to(costs), costs], -1)
        reward = torch.where(self.left, self.penalty, self.log["reward"][nearest])
        return reward, self.log["terminated"][nearest] & ~self.left


def _columns(log: str | Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns a log's columns, and no costs [M, 0] where it has none.

    Raises:
        ValueError: there is no such file, or a column is missing, of another length, or not finite.
    """
    if isinstance(log, str):
        if not Path(log).is_file():
            raise ValueError(
                f"LoggedModel: log = {log!r:.200}: there is no such file; give an .npz file of transitions"
            )
        with np.load(log) as file:
            log = dict(file)
    if missing := [name for name in NEEDED if name not in log]:
        raise ValueError(f"LoggedModel: log lacks {', '.join(missing)}; it has {', '.join(sorted(log))}")
    count = len(log["reward"])
    found = {name: torch.as_tensor(np.asarray(log[name])) for name in (*NEEDED, "truncated", "cost") if name in log}
    found.setdefault("truncated", torch.zeros(count, dtype=torch.bool))
    found.setdefault("cost", torch.zeros(count, 0))
    for name, column in found.items():
        wanted = 2 if name in ("observation", "action", "next_observation") else 1
        if len(column) != count or not count or (column.ndim != wanted and name != "cost"):
            raise ValueError(
                f"LoggedModel: log.{name} must have {wanted} dimensions and the length of reward, {count}, at least 1; "
                f"found {list(column.shape)}"
            )
        if not column.double().isfinite().all():
            raise ValueError(f"LoggedModel: log.{name} has values that are not finite; leave these rows out")
        found[name] = column.bool() if name in ("terminated", "truncated") else column.float()
    found["cost"] = found["cost"].reshape(count, -1)
    return found
