"""The way to a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from polopt.config import ConfigError


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray's module, connected to a cluster for the length of the block; as it was before, where it was connected.

    address: "auto" for the one that this machine belongs to, HOST:PORT, or "local" for one that is started here.

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
        settings["include_dashboard"] = False
    try:
        ray.init(address, **settings)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"no Ray cluster answers at {address}: {reason}; start one with `ray start --head`") from None
    try:
        yield ray
    finally:
        ray.shutdown()
