"""Juggling: impacts against closed forms and scipy's root finder, and the flight against a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from polopt.worlds.control import Juggling, MirrorLaw
from polopt.worlds.control.juggling import BALL, GRAVITY, STEP, axis


def held(world: Juggling, steps: int) -> list[float]:
    """Heights of the ball above the resting ball's after each step, the racket hovering."""
    found = []
    for _ in range(steps):
        world.step(torch.zeros(1, world.dims))
        found.append(float(world.ball[0, -1]) - BALL)
    return found


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("c", [1.0, 0.8])
def test_apexes_fall_by_the_square_of_restitution(dims: int, c: float) -> None:
    """h, c^2 h, c^4 h at the times of free flight; without loss the same again and again."""
    world = Juggling(1, dims=dims, restitution=(c, c), spread=0.0, apex=0.5)
    world.reset(seed=0)
    first = float(world.ball[0, -1]) - BALL
    heights = held(world, 90)
    down = math.sqrt(2 * first / GRAVITY)
    for k in range(1, 3):
        middle = down + 2 * down * sum(c**j for j in range(1, k)) + down * c**k  # the time of the k-th apex
        near = [heights[round(middle / STEP) - 1 + i] for i in (-1, 0, 1)]
        assert max(near) == pytest.approx(first * c ** (2 * k), abs=GRAVITY * STEP**2 / 2)
    if c == 1:
        energy = GRAVITY * (float(world.ball[0, -1]) - BALL) + float(world.ball_velocity[0].square().sum()) / 2
        assert energy == pytest.approx(GRAVITY * first, rel=1e-4)


def test_an_impact_in_a_step_is_scipys_root() -> None:
    """A tilted, moving racket: the time by Brent's method, the reflection by hand."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        world = Juggling(1, dims=3, restitution=(0.75, 0.75))
        world.reset(seed=0)
        tilt = torch.tensor(draw.uniform(-0.3, 0.3, (1, 2)), dtype=torch.float32)
        normal = axis(tilt)
        world.tilt, world.velocity = tilt, torch.tensor(draw.normal(size=(1, 3)), dtype=torch.float32)
        world.ball_velocity = torch.tensor([[0.3, -0.2, -2.0]])
        world.ball = world.place + normal * (BALL + float(draw.uniform(0.005, 0.05)))
        n, p = normal[0].numpy().astype(float), (world.ball - world.place)[0].numpy().astype(float)
        w, u = world.ball_velocity[0].numpy().astype(float), world.velocity[0].numpy().astype(float)
        fall = np.array([0, 0, -GRAVITY])
        gap = lambda t: n @ (p + (w - u) * t + fall * t * t / 2) - BALL  # noqa: B023, E731
        world._flight(normal)
        if gap(STEP) > 0:
            after = w + fall * STEP
        else:
            t = brentq(gap, 0, STEP, xtol=1e-13)
            met = w + fall * t
            after = met - 1.75 * (n @ (met - u)) * n + fall * (STEP - t)
        assert world.ball_velocity[0].tolist() == pytest.approx(after.tolist(), abs=2e-4)


def test_a_miss_is_no_hit() -> None:
    """A ball beside the racket falls past it, and the episode ends when it is 0.4 m below."""
    world = Juggling(1, dims=2, spread=0.0)
    world.reset(seed=0)
    world.ball[0, 0] = 0.3
    fall = math.ceil(math.sqrt(2 * (0.6 + 0.4) / GRAVITY) / STEP)
    ends = [bool(world.step(torch.zeros(1, 2))[2]) for _ in range(fall)]
    assert ends == [False] * (fall - 1) + [True]
    assert float(world.hits) == 0


def test_the_quadrotor_follows_its_commands() -> None:
    """Twenty steps of thrust and one body rate, in plain Python."""
    world = Juggling(1, dims=2)
    world.reset(seed=0)
    x, v, a, rate, thrust, follow = [0.0, 0.0], [0.0, 0.0], 0.0, 0.0, GRAVITY, 1 - math.exp(-0.4)
    for _ in range(20):
        world.step(torch.tensor([[0.3, 0.1]]))
        thrust += follow * (1.3 * GRAVITY - thrust)
        rate += follow * (0.6 - rate)
        a += STEP * rate
        v = [v[0] + STEP * thrust * math.sin(a), v[1] + STEP * (thrust * math.cos(a) - GRAVITY)]
        x = [x[0] + STEP * v[0], x[1] + STEP * v[1]]
    assert world.place[0].tolist() == pytest.approx(x, rel=1e-4)
    assert float(world.tilt) == pytest.approx(a, rel=1e-5)


def test_a_late_ball_is_that_of_some_steps_before() -> None:
    now, late = Juggling(4, dims=2), Juggling(4, dims=2, delay=3)
    seen = [[world.reset(seed=1)[0]] for world in (now, late)]
    for _ in range(8):
        for log, world in zip(seen, (now, late), strict=True):
            log.append(world.step(torch.full((4, 2), 0.1))[0])
    for t in range(9):
        assert torch.equal(seen[1][t][:, :4], seen[0][max(t - 3, 0)][:, :4])
        assert torch.equal(seen[1][t][:, 4:], seen[0][t][:, 4:])


def test_the_mirror_law_juggles() -> None:
    world, rule, most = Juggling(32, dims=3), MirrorLaw(mirror=0.2, stiff=10.0, damp=4.0), 0.0
    seen, _ = world.reset(seed=0)
    for _ in range(300):
        seen, *_ = world.step(rule(seen, torch.Generator()))
        most = max(most, float(world.hits.mean()))
    assert most > 4


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="dims 2 or 3"):
        Juggling(1, dims=4)
    with pytest.raises(ValueError, match="no weight 'hits'"):
        Juggling(1, shaping={"hits": 1.0})
