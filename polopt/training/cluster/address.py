"""Connections to a Ray cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

from polopt.config import ConfigError

# Seconds within which a server must answer at an address.
ANSWERS = 5.0


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connects to a Ray cluster for the length of the block, and yields Ray's module; a connection that exists already
    stays.

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
    else:
        _check_listening(address)
    try:
        ray.init(address, **settings)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise ConfigError(f"no Ray cluster answers at {address}: {reason}; start one with `ray start --head`") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_listening(address: str) -> None:
    """Checks that a server listens at an address; Ray itself would try for a minute.

    Raises:
        ConfigError: there is none.
    """
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, colon, port = named.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS).close()
    except OSError as error:
        raise ConfigError(
            f"no Ray cluster answers at {host}:{port}: {error}; start one with `ray start --head`, or name another"
        ) from None
