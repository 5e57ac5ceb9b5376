# ruff: noqa: SIM115  (files that must not open are not closed)
"""Functions that judge as nobody should, for worker processes; importable by name, as a user's own file is."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def misbehave(completion: str, row: dict[str, Any]) -> float:
    """Does what the completion is called."""
    if completion == "exit":
        os._exit(0)
    if completion == "memory":
        return float(len(bytearray(2**33)))
    if completion == "crash":
        ctypes.string_at(0)
    if completion == "sleep":
        time.sleep(1e6)
    if completion == "leave":
        sys.exit(0)
    if completion == "garbage":
        os.write(_connection(), b"x" * 100_000)
    if completion == "pickle":
        os.write(_connection(), b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.\n")
    if completion == "too much":
        os.write(_connection(), b'{"value": 1.0}\n' * 200)
        time.sleep(0.2)
    if completion == "text":
        return "one"  # type: ignore[return-value]
    return 1.0


def _connection() -> int:
    """The descriptor on which a worker answers."""
    for descriptor in range(3, 64):
        try:
            if socket.socket(fileno=os.dup(descriptor)).family == socket.AF_UNIX:
                return descriptor
        except OSError:
            continue
    raise RuntimeError("no connection found")


def escape(completion: str, row: dict[str, Any]) -> float:
    """How many of these attempts at the world outside come through; row["folder"]: where to leave a trace. Raises the
    names of those that do."""
    folder, learner = row["folder"], row["learner"]
    there = os.path.join(folder, "there")
    attempts: dict[str, Callable[[], Any]] = {
        "write": lambda: open(os.path.join(folder, "new"), "w"),
        "append": lambda: open(there, "a"),
        "truncate": lambda: os.truncate(there, 0),
        "remove": lambda: os.unlink(there),
        "rename": lambda: os.rename(there, there + "2"),
        "link": lambda: os.symlink(there, there + "3"),
        "folder": lambda: os.mkdir(os.path.join(folder, "made")),
        "mode": lambda: os.chmod(there, 0o777),
        "system": lambda: 1 / (os.system(f"touch {folder}/system") == 0),
        "run": lambda: subprocess.run(["touch", f"{folder}/run"], check=True),
        "fork": lambda: os.fork() or os._exit(0),
        "execute": lambda: os.execv("/bin/true", ["true"]),
        "network": lambda: socket.socket(),
        "signal": lambda: os.kill(learner, 0),
        "limits": lambda: resource.prlimit(learner, resource.RLIMIT_NOFILE),
        "memory of the learner": lambda: open(f"/proc/{learner}/mem", "rb"),
        "environment of the learner": lambda: open(f"/proc/{learner}/environ", "rb").read(),
        "environment": lambda: 1 / len(os.environ),
        "more memory": lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)),
    }
    through = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except (OSError, ZeroDivisionError, ValueError):
            continue
        through.append(name)
    if through:
        raise RuntimeError(", ".join(through))
    return float(len(attempts))


def picky(completion: str, row: dict[str, Any]) -> float:
    """Dies over every answer with an even number of characters."""
    if len(completion) % 2 == 0:
        os._exit(1)
    return 1.0


def many(prompts: list[str], completions: list[str], **columns: list[str]) -> list[float]:
    """Rewards of many completions, as TRL calls it."""
    return [1.0] * len(completions)
