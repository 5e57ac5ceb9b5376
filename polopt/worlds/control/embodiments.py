"""Navigation to a goal in the plane by robots of several embodiments, which take the same commands."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld

Embodiment = Literal["omni", "car", "heavy", "all"]
EMBODIMENTS: tuple[Embodiment, ...] = ("omni", "car", "heavy")
# Seconds of a step; metres from the goal and metres a second at which an episode succeeds.
STEP, NEAR, SLOW = 0.1, 0.25, 0.4


class EmbodiedNavigation(StepWorld):
    """A robot that drives to a goal 1 to 3 m away and stops there. A command a = (a_0, a_1), clipped to [-1, 1], is

        omni:   the velocity forward and to the left, v = a;  the heading stays
        car:    v = (max(a_0, 0), 0);  the heading turns by a_1 v / `radius` a second
        heavy:  dv/dt = (a - v) / `lag`;  the heading stays

    in m/s, for steps of 0.1 s. Observations are the goal [2] and the velocity [2] in the robot's frame. The reward is
    `progress` times the distance that a step has come nearer, and 2 more at a distance below 0.25 m with a speed below
    0.4 m/s, where the episode terminates; `horizon` steps end it, too.

    embodiment: "all" draws one for each episode.
    shown: whether observations end in a one-hot vector [3] of the embodiment.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        embodiment: Embodiment = "omni",
        shown: bool = False,
        radius: float = 0.6,
        lag: float = 3.0,
        progress: float = 1.0,
        horizon: int = 60,
        device: str = "cpu",
    ) -> None:
        if embodiment not in (*EMBODIMENTS, "all") or not radius > 0 or not lag > STEP:
            raise ValueError(
                f"EmbodiedNavigation: needs an embodiment of {', '.join(EMBODIMENTS)} or all, radius > 0 and lag > "
                f"{STEP}, found {embodiment!r:.40}, {radius} and {lag}"
            )
        self.embodiment, self.shown, self.radius, self.lag = embodiment, shown, radius, lag
        self.progress = progress
        size = 4 + len(EMBODIMENTS) * shown
        self.single_observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space = Box(-1.0, 1.0, (2,), np.float32)
        settings = {"embodiment": embodiment, "shown": shown, "radius": radius, "lag": lag, "progress": progress}
        super().__init__(num_envs, horizon, settings, device)
        self.goal, self.velocity = (torch.zeros(num_envs, 2, device=self.device) for _ in range(2))
        self.kind = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def begin(self, rows: Tensor) -> None:
        angle, distance = 2 * math.pi * self.uniform(len(rows)), 1 + 2 * self.uniform(len(rows))
        self.goal[rows] = distance[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
        self.velocity[rows] = 0.0
        if self.embodiment == "all":
            kinds = torch.randint(len(EMBODIMENTS), (len(rows),), generator=self.generator, device=self.device)
            self.kind[rows] = kinds
        else:
            self.kind[rows] = EMBODIMENTS.index(self.embodiment)

    def observe(self) -> Tensor:
        kind = [one_hot(self.kind, len(EMBODIMENTS)).float()] if self.shown else []
        return torch.cat([self.goal, self.velocity, *kind], 1)

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        command = action.float().clamp(-1, 1)
        car, heavy = (self.kind == i for i in (1, 2))
        forward = command[:, 0].clamp(min=0)
        velocity = torch.where(heavy[:, None], self.velocity + STEP / self.lag * (command - self.velocity), command)
        self.velocity = torch.where(car[:, None], torch.stack([forward, torch.zeros_like(forward)], 1), velocity)
        before = self.goal.norm(dim=1)
        moved = self.goal - STEP * self.velocity
        turn = torch.where(car, STEP * command[:, 1] * forward / self.radius, 0)
        x, y = moved.unbind(1)  # the goal turns the other way in the robot's frame
        self.goal = torch.stack([turn.cos() * x + turn.sin() * y, turn.cos() * y - turn.sin() * x], 1)
        distance = self.goal.norm(dim=1)
        succeeded = (distance < NEAR) & (self.velocity.norm(dim=1) < SLOW)
        return self.progress * (before - distance) + 2 * succeeded.float(), succeeded


class GoToGoal(ControlRule):
    """The command a = gain * goal - damping * velocity; a_0 is at least `creep` beyond `NEAR` of the goal.

    With damping 0 and creep 0 it is a controller of an omni robot. A car needs some creep to turn round, and a heavy
    robot some damping.
    """

    gain: float = 2.0
    damping: float = 0.0
    creep: float = -1.0

    world = EmbodiedNavigation

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        goal, velocity = observation[:, :2], observation[:, 2:4]
        command = (self.gain * goal - self.damping * velocity).clamp(-1, 1)
        far = goal.norm(dim=1) > NEAR
        ahead = torch.where(far, command[:, 0].clamp(min=self.creep), command[:, 0])
        return torch.stack([ahead, command[:, 1]], 1)
