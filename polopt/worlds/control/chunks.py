"""Chunks of actions: several steps of an environment for each decision."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from polopt.worlds.control.world import StepWorld


def chunk_space(space: gymnasium.Space[Any], length: int) -> Box:
    """Returns the space of `length` actions one after the other, [length A].

    Raises:
        ValueError: the actions are no vectors, or length < 1.
    """
    if not isinstance(space, Box) or length < 1:
        raise ValueError(f"chunks of actions need a Box of actions and a length >= 1, found {space} and {length}")
    low, high = (np.tile(bound.reshape(-1), length) for bound in (space.low, space.high))
    return Box(low, high, dtype=space.dtype)  # type: ignore[arg-type]


class ActionChunk(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose action is `length` actions [length A], played one after the other until an episode ends.

    Its reward is the sum of theirs, and its observation the last one.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], length: int) -> None:
        super().__init__(env)
        self.length, self.each = length, env.action_space
        self.action_space = chunk_space(env.action_space, length)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        assert self.each.shape is not None
        for one in np.asarray(action).reshape(self.length, *self.each.shape):
            observation, reward, terminated, truncated, info = self.env.step(one)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class ChunkedWorld(StepWorld):
    """A world whose action is `length` actions [N, length A], played one after the other; the reward is their sum.

    Copies whose episodes end within a chunk have no reward after it. A time limit that a chunk would cross is reached
    at its end.
    """

    def __init__(self, world: StepWorld, length: int) -> None:
        self.world, self.length = world, length
        self.single_observation_space = world.single_observation_space
        self.single_action_space = chunk_space(world.single_action_space, length)
        super().__init__(world.num_envs, -(-world.horizon // length), {}, str(world.device))
        self.metadata, self.spec = world.metadata, copy.copy(world.spec)
        world.generator = self.generator

    def again(self, num_envs: int) -> ChunkedWorld:
        return ChunkedWorld(self.world.again(num_envs), self.length)

    def begin(self, rows: Tensor) -> None:
        self.world.begin(rows)

    def observe(self) -> Tensor:
        return self.world.observe()

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        shape = self.world.single_action_space.shape
        assert shape is not None
        total, over = None, torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        for one in action.reshape(self.num_envs, self.length, *shape).unbind(1):
            reward, terminated = self.world.advance(one)
            reward = torch.where(over, torch.zeros_like(reward), reward)
            total = reward if total is None else total + reward
            over = over | terminated
        assert total is not None
        return total, over
