"""From an address to workers."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

from polopt.config import ConfigError
from polopt.training.cluster.crew import Crew
from polopt.training.cluster.spec import ClusterSpec
from polopt.training.recipe import Recipe

# Seconds in which something must answer at an address.
ANSWERS = 5.0


def for_cluster(recipe: Recipe, address: str | None) -> Recipe:
    """A new run's recipe: with an address it has the settings of a cluster, if only the default ones."""
    if address is None or recipe.cluster is not None:
        return recipe
    # Checked again: what a cluster cannot do for its algorithms.
    return Recipe.model_validate({**recipe.model_dump(mode="json"), "cluster": ClusterSpec().model_dump(mode="json")})


@contextlib.contextmanager
def crew_of(recipe: Recipe, address: str | None) -> Iterator[Crew | None]:
    """The recipe's workers on the cluster at an address, ended with the block; None for a recipe without a cluster.

    Raises:
        ConfigError: the recipe is for a cluster and no address is given, or the other way round; Ray is not there;
            nothing answers at the address.
    """
    if recipe.cluster is None:
        if address is not None:
            raise ConfigError(
                "this run was begun without a cluster, and its rollouts would be others on one; continue it without "
                "--cluster, or begin a new run with it"
            )
        yield None
        return
    if address is None:
        raise ConfigError(
            "the recipe deals its rollouts to the workers of a cluster; name it, as in --cluster auto, --cluster local "
            "or --cluster HOST:PORT, or set cluster to null"
        )
    with connected(address):
        crew = Crew(recipe)
        try:
            yield crew
        finally:
            crew.close()


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray's module, connected to a cluster for the length of the block; as it was before, where it was connected.

    Raises:
        ConfigError: Ray is not installed; there is no cluster at the address.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError('a cluster needs Ray: pip install "polopt[cluster]"') from None
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    if address == "local":
        settings |= {"address": "local", "include_dashboard": False}
    else:
        _knock(address)
        settings["address"] = address
    try:
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise ConfigError(f"no Ray cluster answers at {address}: {reason}; start one with `ray start --head`") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Ray itself would try for a minute."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        host, colon, port = os.environ.get("RAY_ADDRESS", "").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS).close()
    except OSError as error:
        raise ConfigError(
            f"no Ray cluster answers at {host}:{port}: {error}; start one with `ray start --head`, or name another"
        ) from None
