"""Episodes whose rewards have a gradient, against played ones, differences and the optimum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from torch import Tensor

from polopt.networks import LinearProgram
from polopt.worlds.control import CombinationLock, HiddenDynamics, ProgramRule, StepWorld, episode_returns
from polopt.worlds.control.hidden import feedback

GAINS = [[-1.5, -1.0, 0.3]]


def act_by(gains: Tensor) -> Any:
    return lambda seen: seen @ gains.T


def test_rewards_are_those_that_are_played() -> None:
    world = HiddenDynamics(6, wind=1.0)
    rewards, played = world.unroll(act_by(torch.tensor(GAINS)), seed=4)
    rule = ProgramRule(program=LinearProgram(gains=tuple(map(tuple, GAINS))))
    torch.testing.assert_close(rewards.double().sum(1), episode_returns(world, rule, seed=4))
    assert played.shape == rewards.shape == (6, world.horizon)
    assert played.all()
    assert not rewards.requires_grad


def test_gradients_are_differences() -> None:
    """Also those of the returns of a stretch: the noise and the first states are those of the seed."""
    world, gains = HiddenDynamics(40, wind=1.0), torch.tensor(GAINS, requires_grad=True)
    world.unroll(act_by(gains), seed=1, steps=30)[0].sum(1).mean().backward()
    assert gains.grad is not None
    for i in range(3):
        moved = [torch.tensor(GAINS) for _ in range(2)]
        for sign, each in zip((1, -1), moved, strict=True):
            each[0, i] += sign * 0.02
        up, down = (world.unroll(act_by(g), seed=1, steps=30)[0].double().sum(1).mean() for g in moved)
        assert float(gains.grad[0, i]) == pytest.approx(float(up - down) / 0.04, rel=0.02, abs=1e-3)


def test_it_leaves_the_world_alone() -> None:
    world, other = (HiddenDynamics(3) for _ in range(2))
    for each in (world, other):
        each.reset(seed=2)
    world.unroll(act_by(torch.tensor(GAINS)), seed=9)
    action = torch.ones(3, 1)
    for _ in range(world.horizon + 1):
        assert torch.equal(world.step(action)[1], other.step(action)[1])


class Ends(StepWorld):
    """Rewards of the action; copy i terminates after i + 1 steps."""

    def __init__(self, num_envs: int = 1, *, horizon: int = 4, device: str = "cpu") -> None:
        self.single_observation_space, self.single_action_space = Box(-9, 9, (1,)), Box(-1, 1, (1,))
        super().__init__(num_envs, horizon, {}, device)

    def begin(self, rows: Tensor) -> None:
        pass

    def observe(self) -> Tensor:
        return self.time[:, None].float()

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        return action[:, 0], self.time >= torch.arange(self.num_envs)


def test_nothing_counts_after_an_end() -> None:
    weight = torch.ones(1, requires_grad=True)
    rewards, played = Ends(3).unroll(lambda seen: weight * (1 + seen), seed=0)
    assert played.tolist() == [[True, False, False, False], [True, True, False, False], [True, True, True, False]]
    assert rewards.tolist() == [[1, 0, 0, 0], [1, 2, 0, 0], [1, 2, 3, 0]]
    rewards.sum().backward()
    assert weight.grad is not None
    assert weight.grad.item() == 1 + 3 + 6


def test_the_best_feedback_is_stationary() -> None:
    """Of a mass without delay and wind, whose gain is known: that of the Riccati equation, and not its neighbours."""
    world = HiddenDynamics(400, gain=(1.0, 1.0), wind=0.0, delay=0, nuisance=0)
    best, sizes = -feedback(torch.ones(1).double(), 0).float(), []
    for times in (1.0, 0.7, 1.4):
        gains = (times * best).requires_grad_()
        world.unroll(act_by(gains), seed=3)[0].sum(1).mean().backward()
        assert gains.grad is not None
        sizes.append(float(gains.grad.norm()))
    assert sizes[0] < 0.05 * min(sizes[1:])


def test_what_cannot_be_is_refused() -> None:
    world = HiddenDynamics(2)
    with pytest.raises(ValueError, match=r"steps must be in 1 to 60, found 61"):
        world.unroll(act_by(torch.tensor(GAINS)), seed=0, steps=61)
    lock, weight = CombinationLock(2), torch.ones(1, requires_grad=True)
    with pytest.raises(ValueError, match="its rewards have no gradient in the actions"):
        lock.unroll(lambda seen: (weight * seen[:, 0]).round() * 0, seed=0)
