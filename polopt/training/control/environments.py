"""The environments that a control recipe names."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from polopt.config import ConfigError
from polopt.part_names import NameNotFound, load_file
from polopt.training.control.recipe import EnvironmentSpec
from polopt.worlds.control.chunks import ActionChunk, ChunkedWorld
from polopt.worlds.control.pooled import PooledCopies
from polopt.worlds.control.world import StepWorld

_BAD = (gymnasium.error.Error, TypeError, ValueError, ImportError, NameNotFound)


def registered(spec: EnvironmentSpec) -> str:
    """Returns the name that gymnasium makes an environment by, after the file that registers it was loaded."""
    file, _, name = spec.id.rpartition(":")
    if not file.endswith(".py"):
        return spec.id
    load_file(Path(file))
    return name


def make_one(spec: EnvironmentSpec, **settings: Any) -> gymnasium.Env[Any, Any]:
    """Makes a single environment. settings: what it is made with beside those of the recipe."""
    made = gymnasium.make(registered(spec), **spec.settings, **settings)
    return made if spec.chunk == 1 else ActionChunk(made, spec.chunk)


def make_copies(spec: EnvironmentSpec, copies: int) -> VectorEnv:
    """Makes so many copies of an environment, which are stepped together.

    Raises:
        ConfigError: it cannot be made so.
    """
    try:
        return _chunks(spec, copies) if spec.chunk > 1 else _plain(spec, copies, spec.vectorization)
    except _BAD as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"environment.id = {spec.id!r:.60} cannot be made: {reason}") from None


def _plain(spec: EnvironmentSpec, copies: int, mode: str, **settings: Any) -> VectorEnv:
    if mode == "envpool":
        return PooledCopies(spec.id, copies, spec.settings)
    chosen: Any = None if mode == "auto" else mode
    return gymnasium.make_vec(registered(spec), num_envs=copies, vectorization_mode=chosen, **settings, **spec.settings)


def _chunks(spec: EnvironmentSpec, copies: int) -> VectorEnv:
    """Makes copies whose action is a chunk: worlds as a whole, other environments one by one."""
    found = None
    if spec.vectorization in ("auto", "vector_entry_point"):
        found = _plain(spec, copies, spec.vectorization)
        if isinstance(found, StepWorld):
            return ChunkedWorld(found, spec.chunk)
        found.close()
    if spec.vectorization in ("vector_entry_point", "envpool"):
        raise ValueError(
            f"environment.chunk = {spec.chunk} cannot cut the steps of copies that are stepped together; set "
            "environment.vectorization to sync or async"
        )
    mode = "sync" if spec.vectorization == "auto" else spec.vectorization
    return _plain(spec, copies, mode, wrappers=[functools.partial(ActionChunk, length=spec.chunk)])
