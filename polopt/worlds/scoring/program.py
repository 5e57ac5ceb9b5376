"""The program of the processes beside the learner: one builds scorers and forks workers, each of which judges answers.

Standard library alone, so that it starts in an instant. The first process imports the packages once, reads no answer
and forks; a worker confines itself before it reads its first one.
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
# Characters of what a scorer raised that are passed on.
SHOWN = 300


def receive(connection: socket.socket) -> Any:
    """One message of plain data; None at the end."""
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
    """One line of JSON."""
    connection.sendall(json.dumps(fields).encode() + b"\n")


def judge(scorer: Scorer, answer: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a scorer makes of an answer: `value`, or `raised`, or `lost`."""
    try:
        value = scorer(answer, row)
        if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
            return {"odd": repr(value)[:SHOWN]}
        return {"value": float(value)}
    except KeyboardInterrupt:
        raise
    except MemoryError:
        return {"lost": "memory"}
    except BaseException as error:  # SystemExit too: a scorer does not end the process
        return {"raised": f"{type(error).__name__}: {error}"[:SHOWN]}


def work(connection: socket.socket, scorers: Mapping[bytes, Scorer], memory: float) -> None:
    """Judge answers until nobody asks for more."""
    os.environ.clear()
    reply(connection, missing=limits.confine(memory))
    while (message := receive(connection)) is not None:
        seconds, rows, asked = message
        limits.allow_seconds(seconds * len(asked))
        for key, row, answer in asked:
            found = judge(scorers[key], answer, rows[row])
            reply(connection, **found)
            if "lost" in found:
                return  # what is left of the process cannot be relied on


class WorkerFactory:
    """Builds scorers, and forks workers that have them."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.scorers: dict[bytes, Scorer] = {}

    def run(self) -> None:
        """Do what the learner asks until it is gone; then end every worker."""
        children: set[int] = set()
        try:
            while (message := receive(self.control)) is not None:
                order, *given = message
                if order == "build":
                    self._build(*given)
                elif order == "fork":
                    children.add(self._fork(*given))
                else:
                    reply(self.control, status=self._end(children, *given))
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)

    def _end(self, children: set[int], pid: int) -> int:
        """How a worker ended, which it does now if it has not yet."""
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
        _, handed, _, _ = socket.recv_fds(self.control, 1, 1)
        pid = os.fork()
        if pid:
            os.close(handed[0])
            reply(self.control, pid=pid)
            return pid
        status = 1
        try:
            self.control.close()
            work(socket.socket(fileno=handed[0]), self.scorers, memory)
            status = 0
        finally:
            os._exit(status)


@contextlib.contextmanager
def without_figures() -> Iterator[None]:
    """Inside, packages that import matplotlib get empty modules: no scorer draws, and loading it takes as long as all
    the rest."""

    before = set(sys.modules)
    sys.meta_path.insert(0, NoFigures())
    try:
        yield
    finally:
        sys.meta_path.pop(0)
        for name in set(sys.modules) - before:
            if isinstance(sys.modules[name], Nothing):
                del sys.modules[name]


class Nothing(types.ModuleType):
    """An empty module in which every name is another one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class NoFigures:
    """Finds `Nothing` for every module of matplotlib."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("matplotlib", "mpl_toolkits"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Nothing:
        return Nothing(spec.name)

    def exec_module(self, module: Any) -> None:
        """There is nothing to run."""


def main(descriptor: int) -> None:
    """Serve the learner at the other end of a socket."""
    # The real packages of these names, for functions of the user's that import them.
    for name in [n for n in sys.modules if n.partition(".")[0] == "polopt"]:
        del sys.modules[name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    WorkerFactory(socket.socket(fileno=descriptor)).run()
