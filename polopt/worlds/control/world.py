"""The base class of worlds that step all copies at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Generator, Tensor


def states(shown: Any) -> Tensor:
    """Returns the observations [N, D] in what a world shows, a tensor [N, ...] or a dictionary with one."""
    found: Tensor = shown["observation"] if isinstance(shown, Mapping) else shown
    return found.flatten(1)


class StepWorld(VectorEnv[Tensor, Tensor, Tensor]):
    """N copies of an environment, stepped together as tensors; a gymnasium `VectorEnv` with same-step autoreset.

    A subclass sets `single_observation_space` and `single_action_space` before it calls this constructor, and defines
    `begin`, `observe` and `advance`. This class counts time, truncates an episode after `horizon` steps, resets the
    copies whose episodes are over, and returns their last observations in info["final_obs"], [N, ...], and what
    `advance` has put into `cost`, the costs of the step [N, K], in info["cost"].

    num_envs: copies, N. horizon: steps of an episode, at most.
    settings: keyword arguments that make the same world again.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012
    single_observation_space: Space[Any]
    single_action_space: Space[Any]
    cost: Tensor | None = None

    def __init__(self, num_envs: int, horizon: int, settings: dict[str, Any], device: str = "cpu") -> None:
        name = type(self).__name__
        if num_envs < 1 or horizon < 1:
            raise ValueError(f"{name}: needs num_envs >= 1 and horizon >= 1, found {num_envs} and {horizon}")
        self.num_envs, self.horizon = num_envs, horizon
        self.settings, self.device = {**settings, "horizon": horizon, "device": device}, torch.device(device)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.generator = Generator(self.device)
        self.time = torch.zeros(num_envs, dtype=torch.int64, device=self.device)

    def begin(self, rows: Tensor) -> None:
        """Begins a new episode in the copies `rows`, [M] int64."""
        raise NotImplementedError

    def observe(self) -> Any:
        """Returns the observations, [N, ...] float32, a tensor of its own, or a dictionary of such ones."""
        raise NotImplementedError

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Moves every copy on by one step. Returns rewards [N] and which episodes terminated, [N] bool."""
        raise NotImplementedError

    def again(self, num_envs: int) -> Self:
        """Returns a world of the same settings with so many copies."""
        return type(self)(num_envs=num_envs, **self.settings)  # type: ignore[call-arg]

    def reset(  # type: ignore[override]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins a new episode in all copies. seed: of the world's random numbers; None goes on with the old ones."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self.time.zero_()
        self.begin(torch.arange(self.num_envs, device=self.device))
        return self.observe(), {}

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, actions: Tensor
    ) -> tuple[Any, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Steps every copy. Returns observations, rewards, terminated and truncated, and info; the copies whose
        episodes are over have begun new ones."""
        reward, terminated = self.advance(torch.as_tensor(actions, device=self.device))
        self.time += 1
        truncated = (self.time >= self.horizon) & ~terminated
        over = terminated | truncated
        observation, info = self.observe(), dict[str, Any]()
        if self.cost is not None:
            info["cost"] = self.cost
        if over.any():
            info |= {"final_obs": observation, "_final_obs": over}
            rows = over.nonzero().flatten()
            self.time[rows] = 0
            self.begin(rows)
            observation = self.observe()
        return observation, reward, terminated, truncated, info

    def unroll(self, act: Callable[[Tensor], Tensor], *, seed: int, steps: int | None = None) -> tuple[Tensor, Tensor]:
        """Plays an episode of as many copies in a new world of the same settings, so that rewards have a gradient
        through the states between, where `advance` has one: that of the pathwise estimator, Mohamed et al. 2020, arXiv
        1906.10652.

        act: from observations [N, D] to actions, [N, A] or [N]. seed: of the world. steps: T; None is the horizon.

        Returns rewards [N, T], 0 after the end of an episode, and whether each step was of it, [N, T] bool.

        Raises:
            ValueError: steps is not in 1 .. horizon; or actions have a gradient and rewards have none.
        """
        steps = self.horizon if steps is None else steps
        if not 1 <= steps <= self.horizon:
            raise ValueError(f"{type(self).__name__}.unroll: steps must be in 1 to {self.horizon}, found {steps}")
        world, learns = self.again(self.num_envs), False
        shown: Any = world.reset(seed=seed)[0]
        alive = [torch.ones(self.num_envs, dtype=torch.bool, device=self.device)]
        rewards = list[Tensor]()
        for _ in range(steps):
            action = act(states(shown))
            learns |= action.requires_grad
            reward, terminated = world.advance(action)
            world.time += 1
            rewards.append(torch.where(alive[-1], reward, 0))
            alive.append(alive[-1] & ~terminated)
            shown = world.observe()
        found = torch.stack(rewards, 1)
        if learns and not found.requires_grad:
            raise ValueError(
                f"{type(self).__name__}.unroll: its rewards have no gradient in the actions; take a method of "
                "fragments, as ppo"
            )
        return found, torch.stack(alive[:-1], 1)

    def uniform(self, *shape: int) -> Tensor:
        """Returns numbers uniform on [0, 1)."""
        return torch.rand(shape, generator=self.generator, device=self.device)

    def normal(self, *shape: int) -> Tensor:
        """Returns standard normal numbers."""
        return torch.randn(shape, generator=self.generator, device=self.device)
