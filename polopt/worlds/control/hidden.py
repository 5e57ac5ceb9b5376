"""A mass on a line whose motor and wind differ from episode to episode, and its optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict
from torch import Generator, Tensor

from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld

# Seconds of a step; price of a squared velocity and of a squared action; distance of the walls.
STEP, OF_SPEED, OF_ACTION, WALL = 0.1, 0.1, 0.01, 2.0


class HiddenDynamics(StepWorld):
    """A mass that is to be held at 0, between walls at -2 and 2. With x its place and v its velocity, a step of 0.1 s is

        v <- v + 0.1 (g a + w),  x <- x + 0.1 v,  reward -(x^2 + 0.1 v^2 + 0.01 a^2) of the state before it

    with a gain g and a wind w that are drawn for each episode and that no single observation shows; a wall stops the
    mass. Observations are a Dict: `observation`, (x, v) and numbers that mean nothing, constant in an episode and
    standard normal, and `privileged`, (g, w). x and v are uniform on [-1, 1] at first; `horizon` steps end an episode.

    gain: least and largest g, which is uniform between. wind: w is uniform on [-wind, wind]. nuisance: numbers that mean
    nothing. shown: whether the observation ends in (g, w).
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        gain: tuple[float, float] = (0.5, 2.0),
        wind: float = 2.0,
        nuisance: int = 1,
        shown: bool = False,
        horizon: int = 60,
        device: str = "cpu",
    ) -> None:
        if not 0 < gain[0] <= gain[1] or wind < 0 or nuisance < 0:
            raise ValueError(
                f"HiddenDynamics: needs 0 < gain[0] <= gain[1], wind >= 0 and nuisance >= 0, found {gain}, {wind} and "
                f"{nuisance}"
            )
        self.gain, self.wind, self.shown = tuple(gain), wind, shown
        size = 2 + nuisance + 2 * shown
        self.single_observation_space = Dict(
            {
                "observation": Box(-np.inf, np.inf, (size,), np.float32),
                "privileged": Box(-np.inf, np.inf, (2,), np.float32),
            }
        )
        self.single_action_space = Box(-np.inf, np.inf, (1,), np.float32)
        settings = {"gain": self.gain, "wind": wind, "nuisance": nuisance, "shown": shown}
        super().__init__(num_envs, horizon, settings, device)
        self.state, self.hidden = (torch.zeros(num_envs, 2, device=self.device) for _ in range(2))
        self.meaningless = torch.zeros(num_envs, nuisance, device=self.device)

    def begin(self, rows: Tensor) -> None:
        count, (least, largest) = len(rows), self.gain
        self.state[rows] = 2 * self.uniform(count, 2) - 1
        gain, wind = least + (largest - least) * self.uniform(count), self.wind * (2 * self.uniform(count) - 1)
        self.hidden[rows] = torch.stack([gain, wind], 1)
        self.meaningless[rows] = self.normal(count, self.meaningless.shape[1])

    def observe(self) -> Any:
        seen = torch.cat([self.state, self.meaningless, *([self.hidden] if self.shown else [])], 1)
        return {"observation": seen, "privileged": self.hidden.clone()}

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        force, (x, v), (gain, wind) = action.float()[:, 0], self.state.T, self.hidden.T
        reward = -(x.square() + OF_SPEED * v.square() + OF_ACTION * force.square())
        v = v + STEP * (gain * force + wind)
        moved = x + STEP * v
        self.state = torch.stack([moved.clamp(-WALL, WALL), v.masked_fill(moved.abs() >= WALL, 0)], 1)
        return reward, torch.zeros_like(reward, dtype=torch.bool)


class HiddenDynamicsOptimum(ControlRule):
    """The best law of a horizon without end that knows g and w: a = -(K (x, v) + w) / g, with K of the Riccati equation
    for the mass with u = g a as its action and 0.01 / g^2 as the price of u^2.

    It is exact where the mass reaches no wall and holding it against the wind has a price that no law avoids.
    Environments must show (g, w).
    """

    world = HiddenDynamics

    def prepare(self, world: Any) -> ControlRule:
        if not world.shown:
            raise ValueError(
                "worlds.control.HiddenDynamicsOptimum: it reads gain and wind; set the world's shown = true"
            )
        return self

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        state, gain, wind = observation[:, :2].double(), observation[:, -2].double(), observation[:, -1].double()
        push = (feedback(gain) * state).sum(1) + wind
        return (-push / gain).to(observation)[:, None]


def feedback(gain: Tensor) -> Tensor:
    """Returns K [N, 2] of the best push u = -K (x, v) per mass, for gains [N], by the Riccati recursion in float64."""
    A = torch.tensor([[1.0, STEP], [0.0, 1.0]], dtype=torch.float64)
    B = torch.tensor([[STEP * STEP], [STEP]], dtype=torch.float64)
    Q = torch.diag(torch.tensor([1.0, OF_SPEED], dtype=torch.float64))
    R = (OF_ACTION / gain.double().square())[:, None, None]
    P = Q.expand(len(gain), 2, 2)
    for _ in range(500):
        K = torch.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        P = Q + A.T @ P @ (A - B @ K)
    return K[:, 0]
