"""The policy of a control recipe, of the size that its environments need."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import VectorEnv

from polopt.config import ConfigError
from polopt.networks import Space, Trunk
from polopt.policies.head import HeadError
from polopt.policies.network import NetworkPolicy
from polopt.sampling import PolicyInput
from polopt.step_source import ACTION_MASK, GOAL_KEYS, PRIVILEGED
from polopt.training.control.recipe import ControlRecipe


def policy_for(
    environments: VectorEnv, recipe: ControlRecipe, inputs: Mapping[str, PolicyInput], trunk: Trunk | None
) -> NetworkPolicy:
    """Returns the policy of a recipe for its environments. inputs: what it reads beside the observation. trunk: its
    architecture, None for perceptrons.

    Raises:
        ConfigError: observations, actions, head or trunk do not fit.
    """
    observed, decided = environments.single_observation_space, environments.single_action_space
    entries = {*observed.spaces} if isinstance(observed, Dict) else set[str]()
    told: Any = observed[PRIVILEGED] if isinstance(observed, Dict) and PRIVILEGED in entries else Box(0, 1, (0,))
    read: list[Any] = [observed]
    if isinstance(observed, Dict) and "observation" in entries and entries <= {"observation", ACTION_MASK, PRIVILEGED}:
        read = [observed["observation"]]
    elif isinstance(observed, Dict) and entries == {*GOAL_KEYS}:
        read = [observed[key] for key in GOAL_KEYS]
    if not all(isinstance(space, Box) for space in (*read, told)):
        raise ConfigError(
            f"environment.id = {recipe.environment.id!r}: observations must be a Box, or a Dict of observation and, "
            f"where it has them, {ACTION_MASK} and {PRIVILEGED}, or of {', '.join(GOAL_KEYS)}, found "
            f"{observed!s:.200}; wrap the environment, as with gymnasium.wrappers.FlattenObservation"
        )
    settings: dict[str, Any] = {"observations": sum(math.prod(space.shape) for space in read)}
    settings |= {"privileged": math.prod(told.shape)}
    if isinstance(decided, Discrete):
        settings["actions"] = int(decided.n)
    elif isinstance(decided, Box):
        settings["dimensions"] = int(torch.tensor(decided.shape).prod())
        settings |= {"low": decided.low.reshape(-1).tolist(), "high": decided.high.reshape(-1).tolist()}
    else:
        raise ConfigError(
            f"environment.id = {recipe.environment.id!r}: actions must be Discrete or a Box, found {decided}"
        )
    try:
        space = Space(settings["observations"], settings.get("actions"), settings.get("dimensions"))
        widths = {name: given.width(space) for name, given in inputs.items()}
        settings |= {"inputs": widths, "trunk": trunk}
        if recipe.policy.base is not None:
            return _on_base(settings, recipe)
        spec = recipe.policy.model_dump(exclude={"base", "base_std"})
        return NetworkPolicy(**settings, **spec, seed=recipe.seed_of("policy"))
    except (HeadError, ValueError) as error:
        raise ConfigError(str(error)) from None


def _on_base(settings: Mapping[str, Any], recipe: ControlRecipe) -> NetworkPolicy:
    """Returns a policy that corrects that of a finished run."""
    folder = Path(str(recipe.policy.base)) / "policy"
    if not (folder / "config.json").exists():
        raise ConfigError(f"policy.base = {recipe.policy.base!r}: there is no policy in {folder}; name a finished run")
    try:
        base = NetworkPolicy.load(folder)
    except TypeError:
        raise ConfigError(f"policy.base = {recipe.policy.base!r}: it is no run of kind control") from None
    for name in ("observations", "actions", "dimensions"):
        if base.settings.get(name) != settings.get(name):
            raise ConfigError(
                f"policy.base = {recipe.policy.base!r}: {name} must be {settings.get(name)}, as the environment's, "
                f"found {base.settings.get(name)}"
            )
    if base.inputs != settings["inputs"] or settings["trunk"] is not None:
        raise ConfigError(
            f"policy.base = {recipe.policy.base!r}: it reads {[*base.inputs]} beside the observation, and the stages' "
            f"methods give {[*settings['inputs']]} and the trunk {settings['trunk']!r:.60}; take methods without these"
        )
    return base.with_residual(std=recipe.policy.base_std, seed=recipe.seed_of("policy"))
