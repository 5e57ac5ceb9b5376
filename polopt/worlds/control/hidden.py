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
    """A mass that is to be held at 0, between walls at -2 and 2. With x its place and v its velocity, a step of 0.1 s
    is

        v <- v + 0.1 (g a' + w),  x <- x + 0.1 v,  reward -0.1 (x^2 + 0.1 v^2 + 0.01 a^2) of the state before it

    with a gain g and a wind w that are drawn for each episode and that no single observation shows, and a' the action
    `delay` steps ago, 0 at first; a wall stops the mass. Observations are a Dict: `observation`, (x, v) and numbers
    that mean nothing, constant in an episode and standard normal, and `privileged`, (g, w). x and v are uniform on
    [-1, 1] at first; `horizon` steps end an episode.

    gain: least and largest g, which is uniform between. wind: w is uniform on [-wind, wind]. delay: in steps.
    nuisance: numbers that mean nothing. shown: whether the observation ends in (g, w) and the actions that are yet to
    come, the next one first.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        gain: tuple[float, float] = (0.5, 2.0),
        wind: float = 2.0,
        delay: int = 3,
        nuisance: int = 1,
        shown: bool = False,
        horizon: int = 60,
        device: str = "cpu",
    ) -> None:
        if not 0 < gain[0] <= gain[1] or min(wind, delay, nuisance) < 0:
            raise ValueError(
                f"HiddenDynamics: needs 0 < gain[0] <= gain[1], wind, delay and nuisance >= 0, found {gain}, "
                f"{wind}, {delay} and {nuisance}"
            )
        self.gain, self.wind, self.shown = tuple(gain), wind, shown
        size = 2 + nuisance + (2 + delay) * shown
        self.single_observation_space = Dict(
            {
                "observation": Box(-np.inf, np.inf, (size,), np.float32),
                "privileged": Box(-np.inf, np.inf, (2,), np.float32),
            }
        )
        self.single_action_space = Box(-np.inf, np.inf, (1,), np.float32)
        settings = {"gain": self.gain, "wind": wind, "delay": delay, "nuisance": nuisance, "shown": shown}
        super().__init__(num_envs, horizon, settings, device)
        self.state, self.hidden = (torch.zeros(num_envs, 2, device=self.device) for _ in range(2))
        self.meaningless = torch.zeros(num_envs, nuisance, device=self.device)
        self.coming = torch.zeros(num_envs, delay, device=self.device)

    def begin(self, rows: Tensor) -> None:
        count, (least, largest) = len(rows), self.gain
        self.state[rows] = 2 * self.uniform(count, 2) - 1
        gain, wind = least + (largest - least) * self.uniform(count), self.wind * (2 * self.uniform(count) - 1)
        self.hidden[rows] = torch.stack([gain, wind], 1)
        self.coming[rows] = 0.0
        self.meaningless[rows] = self.normal(count, self.meaningless.shape[1])

    def observe(self) -> Any:
        seen = torch.cat([self.state, self.meaningless, *([self.hidden, self.coming] if self.shown else [])], 1)
        return {"observation": seen, "privileged": self.hidden.clone()}

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        force, (x, v), (gain, wind) = action.float()[:, 0], self.state.T, self.hidden.T
        reward = -STEP * (x.square() + OF_SPEED * v.square() + OF_ACTION * force.square())
        queue = torch.cat([self.coming, force[:, None]], 1)
        self.coming = queue[:, 1:]
        v = v + STEP * (gain * queue[:, 0] + wind)
        moved = x + STEP * v
        self.state = torch.stack([moved.clamp(-WALL, WALL), v.masked_fill(moved.abs() >= WALL, 0)], 1)
        return reward, torch.zeros_like(reward, dtype=torch.bool)


class HiddenDynamicsOptimum(ControlRule):
    """The best law of a horizon without end that knows g and w: with u = g a + w, and u_1 .. u_d those to come,

        u = -K (x, v, u_1, .., u_d)

    and K of the Riccati equation with 0.01 / g^2 as the price of u^2. It is exact where the mass reaches no wall and
    there is no wind, whose price no law avoids, and which this one holds against. Environments must show (g, w).

    delay: d; that of the environment takes its place.
    """

    world = HiddenDynamics

    delay: int = 3

    def check(self, world: Any) -> None:
        if not world.shown:
            raise ValueError("HiddenDynamicsOptimum reads gain and wind; set environment.settings.shown to true")

    def prepare(self, world: Any) -> ControlRule:
        self.check(world)
        return self.but(delay=world.coming.shape[1])

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        state, told = observation[:, :2].double(), observation[:, -2 - self.delay :].double()
        gain, wind, coming = told[:, :1], told[:, 1:2], told[:, 2:]
        push = -(feedback(gain[:, 0], self.delay) * torch.cat([state, gain * coming + wind], 1)).sum(1, keepdim=True)
        return ((push - wind) / gain).to(observation)


def feedback(gain: Tensor, delay: int) -> Tensor:
    """Returns K [N, 2 + delay] of the best law for gains [N], by doubling of the Riccati recursion, in float64."""
    size = 2 + delay
    A, B, Q = torch.zeros(size, size), torch.zeros(size, 1), torch.zeros(size, size)
    A[:2, :2] = torch.tensor([[1.0, STEP], [0.0, 1.0]])
    (A[:2, 2] if delay else B[:2, 0]).copy_(torch.tensor([STEP * STEP, STEP]))
    for i in range(2, size - 1):
        A[i, i + 1] = 1.0
    B[-1, 0] = 1.0 if delay else STEP
    Q[0, 0], Q[1, 1] = 1.0, OF_SPEED
    A, B, Q = (matrix.to(gain) for matrix in (A, B, Q))
    R, I = OF_ACTION / gain.square()[:, None, None], torch.eye(size).to(gain)
    F, G, P = A, B @ B.T / R, Q.expand(len(gain), size, size)
    for _ in range(20):  # 2^20 steps of the recursion
        W = torch.linalg.solve(I + G @ P, torch.cat([F.expand_as(G), G], -1))
        WF, WG = W[..., :size], W[..., size:]
        F, G, P = F @ WF, G + F @ WG @ F.mT, P + F.mT @ P @ WF
    return torch.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)[:, 0]
