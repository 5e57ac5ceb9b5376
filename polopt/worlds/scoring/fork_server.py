"""The learner's side of the scoring processes: the fork server and its workers."""

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

# The most bytes that a worker may send for one answer, and the time limit in seconds of imports and forks.
LINE, PATIENCE = 4096, 300.0
# The most by which the time limit of an answer is multiplied where a busy machine gives its worker no processor time.
STARVED = 10.0
HERE = Path(__file__).parent
# Loads the program under its own name, without the imports of `polopt/__init__.py`.
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
    """Raised when the scoring processes cannot continue."""


class WorkerDied(Exception):
    """Raised when a worker has died, or sent data that violates the protocol."""


class ScorerProcess:
    """The learner's handle of one worker process.

    pending: indices of the answers that the worker has yet to score, in order.
    """

    def __init__(self, pid: int, connection: socket.socket, generation: int) -> None:
        self.pid, self.connection, self.generation = pid, connection, generation
        self.pending: deque[int] = deque()
        self.deadline = self._end = math.inf
        self._unread, self._used = b"", 0.0

    def give(self, seconds: float, *, first: bool = False) -> None:
        """Sets the time limit of the answer that the worker is scoring now.

        first: True for the first answer of a message.
        """
        self.deadline = time.monotonic() + seconds
        self._end = self.deadline + (STARVED - 1) * seconds
        if first:
            self._used = _processor(self.pid)[0]

    def late(self, seconds: float) -> bool:
        """Returns True if the time limit has passed.

        Time in which a busy machine kept a computing worker from running is added to the limit, up to `STARVED` times
        the limit.
        """
        now = time.monotonic()
        if now >= self.deadline:
            used, computing = _processor(self.pid)
            remaining = seconds - (used - self._used)
            if computing and remaining > 0 and now < self._end:
                self.deadline = min(now + max(remaining, 0.01), self._end)
        return now >= self.deadline

    def lines(self) -> list[dict[str, Any]]:
        """Returns the complete lines received, parsed from JSON; an empty list if only a part of a line has arrived.

        Raises:
            WorkerDied: the other end is closed, or a line is too long or no JSON object.
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
    """Returns the processor time of a process in seconds, and whether it is running now; (0, False) without /proc."""
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
        learner_end, server_end = socket.socketpair()
        packages = [("polopt", str(HERE.parents[1])), ("polopt.worlds", str(HERE.parent)), (__package__, str(HERE))]
        with server_end:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-s", "-c", BEGIN.format(packages=packages, descriptor=server_end.fileno())],
                pass_fds=[server_end.fileno()],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is handled by the learner alone
            )
        learner_end.settimeout(PATIENCE)
        self.control = learner_end
        self._building: dict[str, None] = {}  # names of scorers whose build is not yet confirmed

    def build(self, specs: Mapping[bytes, Mapping[str, Any]], now: bool) -> None:
        """Builds these scorers, for the workers that are forked from then on.

        now: wait until they are built; otherwise the next command waits.

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
        """Waits for the scorers that are being built."""
        names, self._building = self._building, {}
        if names:
            found = self._answer()
            if "error" in found:
                raise ConfigError(
                    f"verifier {', '.join(names)} cannot be loaded in a process of its own: {found['error']}"
                )

    def fork(self, memory: float, generation: int) -> tuple[ScorerProcess, list[str]]:
        """Forks a worker and returns it with the names of the limits that this system lacks."""
        learner_end, worker_end = socket.socketpair()
        with worker_end:
            found = self._request(("fork", memory), worker_end.fileno())
        worker = ScorerProcess(int(found["pid"]), learner_end, generation)
        learner_end.settimeout(PATIENCE)
        lines: list[dict[str, Any]] = []
        while not lines:
            lines = worker.lines()
        return worker, [str(x) for x in lines[0]["missing"]]

    def end(self, worker: ScorerProcess) -> int:
        """Kills a worker and returns the signal that it had died of before, or 0."""
        worker.connection.close()
        status = int(self._request(("end", worker.pid))["status"])
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def _request(self, message: tuple[Any, ...], descriptor: int | None = None) -> dict[str, Any]:
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
        """Ends the fork server, and with it every worker."""
        self.control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
