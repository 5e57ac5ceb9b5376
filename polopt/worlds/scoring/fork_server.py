"""The processes beside the learner, as the learner sees them."""

from __future__ import annotations

import contextlib
import json
import marshal
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.errors import UserError
from polopt.worlds.scoring.program import LENGTH

# The most that a worker may send for one answer, and seconds for what is no answer: imports, a fork.
LINE, PATIENCE = 4096, 300.0
# How many times its seconds an answer may take at most where the machine has no time for its worker.
STARVED = 10.0
HERE = Path(__file__).parent
# Loads the program under its own name, without what `import polopt` brings along.
BEGIN = """
import sys, types
for name, folder in {packages!r}:
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module
from polopt.worlds.scoring.program import main
main({descriptor})
"""
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ScorerError(UserError, RuntimeError):
    """The processes of scorers cannot go on."""


class WorkerDied(Exception):
    """A worker has died, or sent what no worker sends."""


class ScorerProcess:
    """One worker as the learner sees it. asked: places of the answers that it has yet to judge, in order."""

    def __init__(self, pid: int, connection: socket.socket, generation: int) -> None:
        self.pid, self.connection, self.generation = pid, connection, generation
        self.asked: deque[int] = deque()
        self.deadline = self._end = math.inf
        self._unread, self._used = b"", 0.0

    def give(self, seconds: float, *, first: bool = False) -> None:
        """Let it take so long over the answer that it is at now. first: of a message."""
        self.deadline = time.monotonic() + seconds
        self._end = self.deadline + (STARVED - 1) * seconds
        if first:
            self._used = _processor(self.pid)[0]

    def late(self, seconds: float) -> bool:
        """Whether its time is over. What a busy machine kept from it, computing, is given to it, within bounds."""
        now = time.monotonic()
        if now >= self.deadline:
            used, computing = _processor(self.pid)
            left = seconds - (used - self._used)
            if computing and left > 0 and now < self._end:
                self.deadline = min(now + max(left, 0.01), self._end)
        return now >= self.deadline

    def lines(self) -> list[dict[str, Any]]:
        """What has come, line by line; at least one, or nothing of one yet.

        Raises:
            Gone: the other end is closed, or what came is no line of JSON as it should be.
        """
        try:
            data = self.connection.recv(1 << 16)
        except (ConnectionError, TimeoutError):
            data = b""
        if not data:
            raise WorkerDied
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > LINE or any(len(line) > LINE for line in lines):
            raise WorkerDied
        try:
            found = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise WorkerDied from None
        if not all(isinstance(one, dict) for one in found):
            raise WorkerDied
        return found


def _processor(pid: int) -> tuple[float, bool]:
    """Seconds of the processor that a process has had, and whether it wants more just now; (0, False) where the system
    does not show it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0, False
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == b"R"


class ForkServer:
    """The process that builds scorers and forks workers. It reads no answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        packages = [("polopt", str(HERE.parents[1])), ("polopt.worlds", str(HERE.parent)), (__package__, str(HERE))]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-c", BEGIN.format(packages=packages, descriptor=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the learner's
            )
        ours.settimeout(PATIENCE)
        self.control = ours
        self._building: dict[str, None] = {}  # the names of scorers whose building is not yet confirmed

    def build(self, specs: Mapping[bytes, Mapping[str, Any]], now: bool) -> None:
        """Build these scorers, for workers that are forked from here on. now: wait until they are built; otherwise the
        next order does.

        Raises:
            ConfigError: one of them cannot be built.
        """
        with self._lock:
            self._settle()
            self._send(("build", dict(specs), list(sys.path), os.getcwd()))
            self._building = dict.fromkeys(str(spec.get("name") or spec["scorer"]) for spec in specs.values())
            if now:
                self._settle()

    def _settle(self) -> None:
        """Wait for what is being built."""
        names, self._building = self._building, {}
        if names:
            found = self._answer()
            if "error" in found:
                raise ConfigError(
                    f"verifier {', '.join(names)} cannot be loaded in a process of its own: {found['error']}"
                )

    def fork(self, memory: float, generation: int) -> tuple[ScorerProcess, list[str]]:
        """A new worker, and the limits that it does not have."""
        ours, theirs = socket.socketpair()
        with theirs:
            found = self._ask(("fork", memory), theirs.fileno())
        worker = ScorerProcess(int(found["pid"]), ours, generation)
        ours.settimeout(PATIENCE)
        lines: list[dict[str, Any]] = []
        while not lines:
            lines = worker.lines()
        return worker, [str(x) for x in lines[0]["missing"]]

    def end(self, worker: ScorerProcess) -> int:
        """Kill a worker; the signal that it had died of before, or 0."""
        worker.connection.close()
        status = int(self._ask(("end", worker.pid))["status"])
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def _ask(self, message: tuple[Any, ...], descriptor: int | None = None) -> dict[str, Any]:
        with self._lock:
            self._settle()
            self._send(message)
            if descriptor is not None:
                socket.send_fds(self.control, [b"+"], [descriptor])
            return self._answer()

    def _send(self, message: tuple[Any, ...]) -> None:
        data = marshal.dumps(message)
        self.control.sendall(LENGTH.pack(len(data)) + data)

    def _answer(self) -> dict[str, Any]:
        answer = b""
        while not answer.endswith(b"\n"):
            part = self.control.recv(LINE)
            if not part:
                raise ScorerError(
                    "the process that begins workers for scorers has ended; free memory and resume the run, or set "
                    "episodes: {where: here}"
                )
            answer += part
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """End it, and with it every worker."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
