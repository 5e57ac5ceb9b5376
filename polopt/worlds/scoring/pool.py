"""Answers judged in worker processes, with limits on time and memory."""

from __future__ import annotations

import atexit
import contextlib
import marshal
import math
import os
import selectors
import signal
import socket
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.worlds.scoring.fork_server import ForkServer, ScorerProcess, WorkerDied
from polopt.worlds.scoring.plain import key_of, plain
from polopt.worlds.scoring.program import LENGTH
from polopt.worlds.scoring.verdict import Request, Verdict

# Answers in one message, and messages per worker and batch.
MESSAGE, SHARES = 64, 4


class ScorerPool:
    """Judges answers in `workers` processes.

    A worker has no environment, no network, and may neither write files nor begin processes (see `limits`). One that
    takes longer than `timeout` seconds over an answer, or more than `memory` GB, is killed and begun again; the answer
    is lost, and the others are judged as if nothing had been. On Linux the time in which a busy machine does not let a
    worker compute is not counted, up to ten times as long. What a worker sends is read as JSON of bounded size.
    Verdicts come in the order of the requests and do not depend on the number of workers.

    Raises:
        ConfigError: this system cannot fork processes.
    """

    def __init__(self, workers: int = 2, timeout: float = 10.0, memory: float = 1.0) -> None:
        if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
            raise ConfigError(
                f"episodes.where = 'processes': {sys.platform} cannot fork processes; set episodes: {{where: here}}, "
                "where scorers have no limit on time and memory"
            )
        self.workers, self.timeout, self.memory = workers, timeout, memory
        self._lock = threading.Condition()
        self._reset()
        ALL.add(self)

    def _reset(self) -> None:
        self._fork_server: ForkServer | None = None
        self._known: set[bytes] = set()
        self._free: list[ScorerProcess | None] = [None] * self.workers
        self._told = False

    def prepare(self, scorers: Sequence[Mapping[str, Any]]) -> None:
        """Have these scorers built while other things are done; nothing happens if there are none."""
        if scorers:
            self.known({key_of(spec): plain(spec, "a scorer") for spec in scorers}, now=False)

    def judge(self, requests: Sequence[Request]) -> list[Verdict]:
        """A verdict on each.

        Raises:
            ConfigError: a scorer cannot be built there, or a row holds what is no plain data.
        """
        if not requests:
            return []
        return _Batch(self, requests).judged(math.ceil(len(requests) / SHARES))

    def known(self, specs: Mapping[bytes, Mapping[str, Any]], now: bool = True) -> None:
        """See to it that workers have these scorers: those that were begun before give way to new ones. now: wait until
        they are built."""
        with self._lock:
            fork_server = self._begun()
            new = {key: spec for key, spec in specs.items() if key not in self._known}
            if new:
                fork_server.build(new, now)
                self._known |= new.keys()

    def _begun(self) -> ForkServer:
        if self._fork_server is not None and self._fork_server.process.poll() is not None:  # somebody has killed it
            self._reset()
        if self._fork_server is None:
            self._fork_server = ForkServer()
        return self._fork_server

    @contextlib.contextmanager
    def lease(self, most: int) -> Iterator[list[ScorerProcess]]:
        """Between 1 and `most` workers that nobody else has, put back at the end."""
        with self._lock:
            while not self._free:
                self._lock.wait()
            count = min(len(self._free), most)
            taken, self._free = self._free[:count], self._free[count:]
        workers: list[ScorerProcess] = []
        try:
            for worker in taken:
                if worker is not None and worker.generation < len(self._known):
                    self._begun().end(worker)
                    worker = None
                workers.append(self.new() if worker is None else worker)
            yield workers
        finally:
            back: list[ScorerProcess | None] = [worker if not worker.asked else None for worker in workers]
            for worker in workers:
                if worker.asked:  # an exception left it at work
                    self._begun().end(worker)
            with self._lock:
                self._free += back + [None] * (count - len(back))
                self._lock.notify_all()

    def new(self) -> ScorerProcess:
        """A worker that has been begun."""
        worker, missing = self._begun().fork(self.memory, len(self._known))
        if missing and not self._told:
            self._told = True
            warnings.warn(
                f"episodes.where = 'processes': on this system the processes of scorers are less confined: "
                f"{'; '.join(missing)}",
                PoloptWarning,
                stacklevel=2,
            )
        return worker

    def end(self, worker: ScorerProcess) -> str:
        """Kill a worker that has died or done wrong; why, if it had died by itself."""
        died_of = self._begun().end(worker)
        return "timeout" if died_of == signal.SIGXCPU else "died"

    def close(self) -> None:
        """End all processes; the next request begins others."""
        with self._lock:
            if self._fork_server is not None:
                for worker in self._free:
                    if worker is not None:
                        worker.connection.close()
                self._fork_server.close()
            self._reset()

    def forget(self) -> None:
        """In a process that was forked from the one with the workers: leave them alone, and begin others if needed."""
        self._lock = threading.Condition()
        if self._fork_server is not None:
            self._fork_server.control.close()
        self._reset()


class _Batch:
    """Requests on their way through a pool."""

    def __init__(self, pool: ScorerPool, requests: Sequence[Request]) -> None:
        self.pool = pool
        # By identity first: a batch asks few scorers about few rows, each many times.
        scorers = {id(request.scorer): request.scorer for request in requests}
        keys = {identity: key_of(spec) for identity, spec in scorers.items()}
        rows = {id(request.row): request.row for request in requests}
        rows = {identity: plain(row, "a row") for identity, row in rows.items()}
        self.items = [(keys[id(request.scorer)], rows[id(request.row)], request.answer) for request in requests]
        pool.known({keys[identity]: plain(spec, "a scorer") for identity, spec in scorers.items()})
        self.verdicts: list[Verdict | None] = [None] * len(requests)

    def judged(self, workers: int) -> list[Verdict]:
        todo = deque(range(len(self.items)))
        with self.pool.lease(min(workers, self.pool.workers)) as leased, selectors.DefaultSelector() as selector:
            share = min(MESSAGE, math.ceil(len(todo) / (SHARES * len(leased))))
            while todo or any(worker.asked for worker in leased):
                for worker in leased:
                    if todo and not worker.asked:
                        self._send(worker, [todo.popleft() for _ in range(min(share, len(todo)))])
                        if worker.connection not in (key.fileobj for key in selector.get_map().values()):
                            selector.register(worker.connection, selectors.EVENT_READ, worker)
                self._receive(leased, selector, todo)
        return [verdict for verdict in self.verdicts if verdict is not None]

    def _send(self, worker: ScorerProcess, places: list[int]) -> None:
        rows = {id(self.items[i][1]): self.items[i][1] for i in places}
        number = {identity: n for n, identity in enumerate(rows)}
        asked = [(key, number[id(row)], answer) for key, row, answer in (self.items[i] for i in places)]
        data = marshal.dumps((self.pool.timeout, list(rows.values()), asked))
        worker.asked.extend(places)
        worker.give(self.pool.timeout, first=True)
        with contextlib.suppress(OSError):  # it has died: read as its end
            worker.connection.sendall(LENGTH.pack(len(data)) + data)

    def _receive(self, leased: list[ScorerProcess], selector: selectors.BaseSelector, todo: deque[int]) -> None:
        """Take what has come, and give up what comes too late."""
        first = min(worker.deadline for worker in leased if worker.asked)
        ready = {key.data for key, _ in selector.select(max(0.0, first - time.monotonic()))}
        for place, worker in enumerate(leased):
            if worker in ready:
                fault = self._read(worker)
            else:
                fault = "timeout" if worker.asked and worker.late(self.pool.timeout) else None
            if fault is not None:
                selector.unregister(worker.connection)
                leased[place] = self._replaced(worker, fault, todo)

    def _read(self, worker: ScorerProcess) -> str | None:
        """Take the verdicts that have come; why the worker has to go, if it does."""
        try:
            for line in worker.lines():
                if not worker.asked:
                    raise WorkerDied
                verdict = Verdict.read(line)
                if verdict.lost == "memory":
                    return "memory"
                self.verdicts[worker.asked.popleft()] = verdict
                worker.give(self.pool.timeout)
        except (WorkerDied, ValueError):
            return "died"
        return None

    def _replaced(self, worker: ScorerProcess, fault: str, todo: deque[int]) -> ScorerProcess:
        """Another worker for one that is lost; of its answers the first one is lost, the rest are judged again."""
        cause = self.pool.end(worker)
        if worker.asked:
            self.verdicts[worker.asked.popleft()] = Verdict(lost=cause if fault == "died" else fault)
        todo.extendleft(reversed(worker.asked))
        worker.asked.clear()
        return self.pool.new()


ALL: weakref.WeakSet[ScorerPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(ALL):
        pool.close()


def _forget_all() -> None:
    for pool in list(ALL):
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
