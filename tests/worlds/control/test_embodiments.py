"""Robots of several embodiments: their motion against closed forms, and rules that reach goals with each."""

from __future__ import annotations

import math

import pytest
import torch

from polopt.worlds.control import EMBODIMENTS, EmbodiedNavigation, GoToGoal, episode_returns

RULES = {
    "omni": GoToGoal(),
    "car": GoToGoal(gain=4.0, creep=0.3),
    "heavy": GoToGoal(gain=4.0, damping=4.0),
}


def driven(embodiment: str, command: tuple[float, float], steps: int) -> EmbodiedNavigation:
    world = EmbodiedNavigation(1, embodiment=embodiment, horizon=10_000)  # type: ignore[arg-type]
    world.reset(seed=0)
    world.goal[:] = torch.tensor([50.0, 20.0])
    for _ in range(steps):
        world.step(torch.tensor([command]))
    return world


def test_an_omni_robot_moves_as_it_is_told() -> None:
    world = driven("omni", (0.5, -2.0), 10)
    torch.testing.assert_close(world.goal[0], torch.tensor([49.5, 21.0]))


def test_a_car_drives_on_a_circle() -> None:
    """After a whole turn it is where it was."""
    steps = 1000
    radius = steps * 0.1 / (2 * math.pi)
    world = EmbodiedNavigation(1, embodiment="car", radius=radius, horizon=10_000)
    world.reset(seed=0)
    world.goal[:] = torch.tensor([50.0, 20.0])
    for _ in range(steps // 2):
        world.step(torch.tensor([[1.0, 1.0]]))
    torch.testing.assert_close(world.goal[0], torch.tensor([-50.0, 2 * radius - 20.0]), atol=0.11, rtol=0)
    for _ in range(steps // 2):
        world.step(torch.tensor([[1.0, 1.0]]))
    torch.testing.assert_close(world.goal[0], torch.tensor([50.0, 20.0]), atol=1e-2, rtol=0)
    world.step(torch.tensor([[-1.0, 1.0]]))  # it has no reverse gear
    assert float(world.velocity.abs().max()) == 0


def test_a_heavy_robot_follows_with_its_lag() -> None:
    world = driven("heavy", (1.0, 0.0), 30)
    assert float(world.velocity[0, 0]) == pytest.approx(1 - (1 - 0.1 / 3) ** 30, rel=1e-5)


@pytest.mark.parametrize("embodiment", EMBODIMENTS)
def test_a_rule_of_its_own_reaches_the_goal(embodiment: str) -> None:
    """Its return is the distance, 2 on average, and 2 for the goal."""
    world = EmbodiedNavigation(200, embodiment=embodiment)  # type: ignore[arg-type]
    own, imitated = (float(episode_returns(world, [rule], 0).mean()) for rule in (RULES[embodiment], RULES["omni"]))
    assert own > (3.3 if embodiment == "car" else 3.7)
    assert embodiment == "omni" or imitated < own - 0.5


def test_the_embodiment_is_shown() -> None:
    world = EmbodiedNavigation(300, embodiment="all", shown=True)
    seen, _ = world.reset(seed=0)
    assert torch.equal(seen[:, 4:].argmax(1), world.kind)
    assert sorted(world.kind.unique().tolist()) == [0, 1, 2]


def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="found 'boat'"):
        EmbodiedNavigation(embodiment="boat")  # type: ignore[arg-type]
