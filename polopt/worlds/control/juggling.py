"""A quadrotor with a racket that juggles a ball: flight in steps, impacts at their exact times; and a mirror law."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Generator, Tensor

from polopt.worlds.control.rule import ControlRule
from polopt.worlds.control.world import StepWorld

GRAVITY = 9.81
# Seconds of a step; of the lag of thrust and body rates behind their commands.
STEP, LAG = 0.02, 0.05
# Bounds of the commands: thrust per mass in units of gravity, body rates in radians a second.
THRUST, RATE = 2.0, 6.0
# The racket's radius, and the ball's; how far the ball may be behind the racket at the beginning of a step; metres.
RACKET, BALL, BEHIND = 0.25, 0.02, 0.05
# An episode ends beyond these: the quadrotor's distance from its place, its tilt, the ball below the racket.
FAR, TILT, DROP = 2.0, 1.0, 0.4
IMPACTS = 3


class Shaping(NamedTuple):
    """Weights of the reward: of a hit; of its centre, exp(-(d / 0.1)^2) at distance d from the racket's; of its height,
    exp(-((h - apex) / 0.3)^2) with h the apex above the racket after it; of a step, less the costs of distance from the
    place, of tilt and of changes of the commands."""

    hit: float = 1.0
    centre: float = 1.0
    height: float = 1.0
    alive: float = 0.02
    away: float = 0.02
    tilt: float = 0.02
    change: float = 0.005


class Juggling(StepWorld):
    """A quadrotor that keeps a ball in the air with a racket on its back.

    The quadrotor has thrust f per mass along its axis n and tilt angles a, which follow commands with a lag:

        v <- v + (f n - g e) dt,    n = (tan a, 1) / |(tan a, 1)|,    e upwards

    The ball falls freely. It meets the racket's plane at the first root t in the step of n . (p + w t - g e t^2 / 2) =
    b, with p and w its place and velocity relative to the racket and b its radius, and leaves with

        w <- w - (1 + c) (n . w) n,    c the coefficient of restitution, without friction or recoil.

    Up to 3 impacts a step are played at their own times. Actions [N, dims], in [-1, 1], are thrust, 0 at hover, and
    body rates. Observations [N, 6 dims - 1]: the ball's place relative to the racket and velocity, as they were `delay`
    steps before, the quadrotor's place, velocity and tilt, and the last commands. An episode terminates when the ball
    has fallen 0.4 m below the racket, or the quadrotor is 2 m from its place or tilts by a radian. `hits` has the hits
    of each episode so far, [N]; only those whose apex is 0.2 m or more above the racket count. Some 170,000 steps
    a second with 256 copies on one core.

    dims: 3, or 2 for a vertical plane. restitution: bounds, of which each episode draws one. spread: half width of the
    ball's first place. apex: aimed at, metres. delay: steps by which the ball is seen late.
    shaping: weights that differ from those of `Shaping`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        dims: int = 3,
        restitution: tuple[float, float] = (0.7, 0.9),
        spread: float = 0.1,
        apex: float = 0.6,
        delay: int = 0,
        shaping: dict[str, float] | None = None,
        horizon: int = 1000,
        device: str = "cpu",
    ) -> None:
        low, high = restitution
        if dims not in (2, 3) or not 0 <= low <= high <= 1 or spread < 0 or apex <= 0 or delay < 0:
            raise ValueError(
                "Juggling: needs dims 2 or 3, restitution 0 <= low <= high <= 1, spread and delay >= 0 and apex > 0, "
                f"found {dims}, {restitution}, {spread}, {delay} and {apex}"
            )
        if unknown := set(shaping or {}) - set(Shaping._fields):
            raise ValueError(f"Juggling: no weight {sorted(unknown)[0]!r}; it has {', '.join(Shaping._fields)}")
        self.dims, self.restitution, self.spread, self.apex, self.delay = dims, (low, high), spread, apex, delay
        self.weights = Shaping(**(shaping or {}))
        self.single_observation_space = Box(-math.inf, math.inf, (6 * dims - 1,), np.float32)
        self.single_action_space = Box(-1.0, 1.0, (dims,), np.float32)
        settings = {"dims": dims, "restitution": (low, high), "spread": spread, "apex": apex, "delay": delay}
        super().__init__(num_envs, horizon, settings | {"shaping": dict(shaping or {})}, device)
        zeros = lambda *shape: torch.zeros(num_envs, *shape, device=self.device)  # noqa: E731
        self.place, self.velocity, self.ball, self.ball_velocity = (zeros(dims) for _ in range(4))
        self.tilt, self.rate, self.thrust, self.c = zeros(dims - 1), zeros(dims - 1), zeros(), zeros()
        self.command, self.hits = zeros(dims), zeros()
        self.seen = zeros(delay + 1, 2 * dims)
        self.fall = torch.zeros(dims, device=self.device)
        self.fall[-1] = -GRAVITY

    def begin(self, rows: Tensor) -> None:
        count, (low, high) = len(rows), self.restitution
        for state in (self.place, self.velocity, self.ball_velocity, self.tilt, self.rate, self.command):
            state[rows] = 0.0
        self.thrust[rows], self.hits[rows] = GRAVITY, 0.0
        self.c[rows] = low + (high - low) * self.uniform(count)
        self.ball[rows] = self.spread * (2 * self.uniform(count, self.dims) - 1)
        self.ball[rows, -1] += self.apex
        self.seen[rows] = self._ball_state()[rows][:, None]

    def _ball_state(self) -> Tensor:
        return torch.cat([self.ball - self.place, self.ball_velocity], 1)

    def observe(self) -> Tensor:
        return torch.cat([self.seen[:, 0], self.place, self.velocity, self.tilt, self.command], 1)

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        action, before = action.clamp(-1, 1), self.command
        self.command = action
        follow = 1 - math.exp(-STEP / LAG)
        # Thrust is that of hover at 0, none at -1 and `THRUST` times gravity at 1.
        span = torch.where(action[:, 0] < 0, 1.0, THRUST - 1)
        self.thrust = self.thrust + follow * (GRAVITY * (1 + span * action[:, 0]) - self.thrust)
        self.rate = self.rate + follow * (RATE * action[:, 1:] - self.rate)
        self.tilt = self.tilt + STEP * self.rate
        normal = axis(self.tilt)
        self.velocity = self.velocity + STEP * (self.thrust[:, None] * normal + self.fall)
        reward = self._flight(normal)
        self.seen = torch.cat([self.seen[:, 1:], self._ball_state()[:, None]], 1)
        w, away, tilt = self.weights, self.place.square().sum(1), self.tilt.square().sum(1)
        reward += w.alive - w.away * away - w.tilt * tilt - w.change * (action - before).square().sum(1)
        lost = (self.ball - self.place)[:, -1] < -DROP
        return reward, lost | (away > FAR**2) | (self.tilt.abs() > TILT).any(1)

    def _flight(self, normal: Tensor) -> Tensor:
        """Moves the racket and the ball on by a step, with the impacts in between. Returns the rewards of hits."""
        left = torch.full((self.num_envs,), STEP, device=self.device)
        reward = torch.zeros_like(left)
        for i in range(IMPACTS + 1):
            time, hit = (left, None) if i == IMPACTS else self._next_impact(normal, left)
            self.ball = self.ball + self.ball_velocity * time[:, None] + self.fall * (time**2 / 2)[:, None]
            self.ball_velocity = self.ball_velocity + self.fall * time[:, None]
            self.place = self.place + self.velocity * time[:, None]
            left = left - time
            if hit is None or not hit.any():
                break
            reward = reward + torch.where(hit, self._impact(normal, hit), 0)
        return reward

    def _next_impact(self, normal: Tensor, left: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the time to the next impact, or `left` where there is none, and which copies have one."""
        gap = (normal * (self.ball - self.place)).sum(1) - BALL
        speed = (normal * (self.ball_velocity - self.velocity)).sum(1)
        pull = GRAVITY * normal[:, -1]
        # gap + speed t - pull t^2 / 2 = 0: the later root is that of the fall.
        root = (speed + (speed**2 + 2 * pull * gap.clamp(min=0)).sqrt()) / pull
        root = torch.where(gap > 0, root, 0.0)
        hit = (gap > -BEHIND) & (root <= left) & (speed - pull * root < 0)
        at = self.ball + self.ball_velocity * root[:, None] - self.place - self.velocity * root[:, None]
        at = at + self.fall * (root**2 / 2)[:, None]
        off = (at - (normal * at).sum(1, keepdim=True) * normal).norm(dim=1)
        hit &= off <= RACKET
        return torch.where(hit, root, left), hit

    def _impact(self, normal: Tensor, hit: Tensor) -> Tensor:
        """Reflects the ball of the copies `hit`. Returns the rewards of the hits that count."""
        at, relative = self.ball - self.place, self.ball_velocity - self.velocity
        into = (normal * relative).sum(1)
        change = -((1 + self.c) * into)[:, None] * normal
        self.ball_velocity = torch.where(hit[:, None], self.ball_velocity + change, self.ball_velocity)
        off = (at - (normal * at).sum(1, keepdim=True) * normal).norm(dim=1)
        apex = self.ball_velocity[:, -1].clamp(min=0) ** 2 / (2 * GRAVITY)
        counts = hit & (apex >= 0.2)
        self.hits = self.hits + counts
        w = self.weights
        worth = w.hit + w.centre * (-((off / 0.1) ** 2)).exp() + w.height * (-(((apex - self.apex) / 0.3) ** 2)).exp()
        return torch.where(counts, worth, 0.0)


def axis(tilt: Tensor) -> Tensor:
    """Returns the quadrotor's axis [N, D], of length 1, for tilt angles [N, D - 1]."""
    wide = torch.cat([tilt.clamp(-1.5, 1.5).tan(), torch.ones_like(tilt[:, :1])], 1)
    return wide / wide.norm(dim=1, keepdim=True)


class MirrorLaw(ControlRule):
    """The racket mirrors the ball: its height is -mirror times the ball's, and it stays below the ball.

    With ball place p and velocity w relative to the racket, in the horizontal plane the wanted acceleration is
    stiff p + damp w, minus `home` times the quadrotor's own place and velocity; it sets the tilt. The vertical
    acceleration is 4 damp times what the mirrored velocity, -mirror w_up, has beyond the quadrotor's. Tilt follows with
    body rates of `turn` times its error. Source: the mirror law of Buehler, Koditschek and Kindlmann 1994, for a racket
    that has to fly.
    """

    dims: int = 3
    mirror: float = 0.15
    stiff: float = 20.0
    damp: float = 6.0
    home: float = 2.0
    turn: float = 10.0

    world = Juggling

    def forward(self, observation: Tensor, generator: Generator) -> Tensor:
        d = self.dims
        ball, ball_velocity, place, velocity, tilt, _ = observation.split([d, d, d, d, d - 1, d], 1)
        side = slice(0, d - 1)
        pull = self.stiff * ball[:, side] + self.damp * (ball_velocity - velocity)[:, side]
        pull = pull - self.home * (place[:, side] + velocity[:, side])
        rise = -self.mirror * ball_velocity[:, -1] - velocity[:, -1] - 2 * place[:, -1]
        lift = GRAVITY + 4 * self.damp * rise
        wanted = (pull / GRAVITY).clamp(-0.5, 0.5).atan()
        thrust = (lift / GRAVITY - 1).clamp(-1, THRUST - 1)
        return torch.cat([thrust[:, None], (self.turn * (wanted - tilt) / RATE).clamp(-1, 1)], 1)
