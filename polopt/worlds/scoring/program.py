"""The program of the scoring processes: one process builds scorers and forks workers, each of which scores answers.

Uses the standard library alone, so that it starts in an instant. The first process imports the packages once, reads no
answer and forks; a worker confines itself before it reads its first answer.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import json
import marshal
import os
import signal
import socket
import struct
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from polopt.worlds.scoring import limits
from polopt.worlds.scoring.scorers import Scorer, build

LENGTH = struct.Struct("!I")
# The most characters of a scorer's exception that are passed on.
SHOWN = 300


def receive(connection: socket.socket) -> Any:
    """Receives one message of plain data; None at the end of the connection."""
    size = _exactly(connection, LENGTH.size)
    if size is None:
        return None
    data = _exactly(connection, *LENGTH.unpack(size))
    return None if data is None else marshal.loads(data)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def reply(connection: socket.socket, **fields: Any) -> None:
    """Sends one line of JSON."""
    connection.sendall(json.dumps(fields).encode() + b"\n")


def judge(scorer: Scorer, answer: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Applies a scorer to an answer; returns a dict with one of `value`, `odd`, `raised` and `lost`, see `Verdict`."""
    try:
        value = scorer(answer, row)
        if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
            return {"odd": repr(value)[:SHOWN]}
        return {"value": float(value)}
    except KeyboardInterrupt:
        raise
    except MemoryError:
        return {"lost": "memory"}
    except BaseException as error:  # SystemExit too: a scorer must not end the process
        return {"raised": f"{type(error).__name__}: {error}"[:SHOWN]}


def work(connection: socket.socket, scorers: Mapping[bytes, Scorer], memory: float) -> None:
    """Scores answers until the connection ends or an answer is lost to a MemoryError."""
    os.environ.clear()
    reply(connection, missing=limits.confine(memory))
    while (message := receive(connection)) is not None:
        seconds, rows, queries = message
        limits.allow_seconds(seconds * len(queries))
        for key, row, answer in queries:
            verdict = judge(scorers[key], answer, rows[row])
            reply(connection, **verdict)
            if "lost" in verdict:
                return  # the state of the process is unreliable after a MemoryError


class WorkerFactory:
    """Builds scorers, and forks workers that have them."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.scorers: dict[bytes, Scorer] = {}

    def run(self) -> None:
        """Executes the learner's commands until the connection ends; then kills every worker."""
        children: set[int] = set()
        try:
            while (message := receive(self.control)) is not None:
                order, *arguments = message
                if order == "build":
                    self._build(*arguments)
                elif order == "fork":
                    children.add(self._fork(*arguments))
                else:
                    reply(self.control, status=self._end(children, *arguments))
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)

    def _end(self, children: set[int], pid: int) -> int:
        """Kills a worker and returns its exit status, 0 for a process that is no worker."""
        if pid not in children:
            return 0
        children.discard(pid)
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]

    def _build(self, specs: Mapping[bytes, Mapping[str, Any]], path: list[str], folder: str) -> None:
        sys.path[:] = path
        os.chdir(folder)
        try:
            for key, spec in specs.items():
                with without_figures() if spec["scorer"] == "reasoning-gym" else contextlib.nullcontext():
                    self.scorers[key] = build(spec)
        except BaseException as error:
            reply(self.control, error=f"{type(error).__name__}: {error}"[:SHOWN])
            return
        reply(self.control, built=len(self.scorers))

    def _fork(self, memory: float) -> int:
        _, descriptors, _, _ = socket.recv_fds(self.control, 1, 1)
        pid = os.fork()
        if pid:
            os.close(descriptors[0])
            reply(self.control, pid=pid)
            return pid
        status = 1
        try:
            self.control.close()
            work(socket.socket(fileno=descriptors[0]), self.scorers, memory)
            status = 0
        finally:
            os._exit(status)


@contextlib.contextmanager
def without_figures() -> Iterator[None]:
    """Replaces matplotlib by empty modules inside the context.

    No scorer draws, and importing matplotlib takes as long as everything else together.
    """

    before = set(sys.modules)
    sys.meta_path.insert(0, MatplotlibStub())
    try:
        yield
    finally:
        sys.meta_path.pop(0)
        for name in set(sys.modules) - before:
            if isinstance(sys.modules[name], EmptyModule):
                del sys.modules[name]


class EmptyModule(types.ModuleType):
    """An empty module in which every attribute is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class MatplotlibStub:
    """An import finder that returns `EmptyModule` for every module of matplotlib."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("matplotlib", "mpl_toolkits"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> EmptyModule:
        return EmptyModule(spec.name)

    def exec_module(self, module: Any) -> None:
        """Does nothing: the module has no code."""


def main(descriptor: int) -> None:
    """Serves the learner at the other end of a socket."""
    # A user's functions may import the real packages of these names.
    for name in [n for n in sys.modules if n.partition(".")[0] == "polopt"]:
        del sys.modules[name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    WorkerFactory(socket.socket(fileno=descriptor)).run()
