"""Copies of an environment that EnvPool steps together, in C++."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from polopt.names import nearest


class PooledCopies(VectorEnv[Any, Any, Any]):
    """Copies of one of EnvPool's environments, with next-step autoreset, as EnvPool has it.

    id: its name in EnvPool, where some of gymnasium's environments have the same names.
    settings: what it is made with.

    A pool's seed is set where it is made, so `reset(seed=...)` makes it anew. It has as many threads as torch has, and
    at most one a copy. Observations have the type of EnvPool's, and actions get it.

    Raises:
        ImportError: EnvPool is not installed.
        ValueError: it has no such environment, or none with these settings.
    """

    def __init__(self, id: str, num_envs: int, settings: Mapping[str, Any]) -> None:
        try:
            self._library = importlib.import_module("envpool")
        except ImportError:
            raise ImportError("vectorization = envpool needs EnvPool: pip install 'polopt[envpool]'") from None
        known = list(self._library.list_all_envs())
        if id not in known:
            raise ValueError(f"EnvPool has no environment of this name{nearest(id, known)}; set vectorization to auto")
        self._make = {"task_id": id, "num_envs": num_envs, **settings}
        self._pool = self._made(0)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _made(self, seed: int) -> Any:
        threads = min(self._make["num_envs"], torch.get_num_threads(), os.cpu_count() or 1)
        try:
            return self._library.make_gymnasium(**self._make, seed=seed, num_threads=threads)
        except (AssertionError, KeyError) as error:
            raise ValueError(str(error)) from None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._pool.close()
            self._pool = self._made(int(np.ravel(seed)[0]) % 2**31)
        observation, info = self._pool.reset()
        return observation, self._columns(info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        kind = self.single_action_space.dtype
        observation, reward, terminated, truncated, info = self._pool.step(np.asarray(actions, kind))
        return observation, reward, terminated, truncated, self._columns(info)

    def _columns(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the entries that have a row for each copy."""
        return {name: value for name, value in info.items() if np.shape(value)[:1] == (self.num_envs,)}

    def close_extras(self, **kwargs: Any) -> None:
        self._pool.close()
