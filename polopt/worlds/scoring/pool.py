"""A pool of worker processes that score answers, with limits on time and memory."""

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

# The most answers in one message, and the number of messages per worker and batch.
MESSAGE, SHARES = 64, 4


class ScorerPool:
    """Scores answers in `workers` processes.

    A worker has no environment and no network, and may neither write files nor start processes (see `limits`). A worker
    that takes longer than `timeout` seconds for an answer, or more than `memory` GB, is killed and replaced; the answer
    is lost, and the verdicts on the others are unaffected. On Linux the time in which a busy machine does not let a
    worker compute is not counted, up to ten times the limit. Data from a worker is parsed as JSON of bounded size.
    Verdicts have the order of the requests and do not depend on the number of workers.

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
        self._built: set[bytes] = set()
        self._free: list[ScorerProcess | None] = [None] * self.workers
        self._warned = False

    def prepare(self, scorers: Sequence[Mapping[str, Any]]) -> None:
        """Starts building these scorers in the background; does nothing if there are none."""
        if scorers:
            self.known({key_of(spec): plain(spec, "a scorer") for spec in scorers}, now=False)

    def judge(self, requests: Sequence[Request]) -> list[Verdict]:
        """Returns a verdict on each request.

        Raises:
            ConfigError: a scorer cannot be built there, or a row contains a value that is no plain data.
        """
        if not requests:
            return []
        return _Batch(self, requests).judged(math.ceil(len(requests) / SHARES))

    def known(self, specs: Mapping[bytes, Mapping[str, Any]], now: bool = True) -> None:
        """Makes these scorers available to workers; workers forked before are replaced at their next lease.

        now: wait until the scorers are built.
        """
        with self._lock:
            fork_server = self._begun()
            new = {key: spec for key, spec in specs.items() if key not in self._built}
            if new:
                fork_server.build(new, now)
                self._built |= new.keys()

    def _begun(self) -> ForkServer:
        if self._fork_server is not None and self._fork_server.process.poll() is not None:  # killed from outside
            self._reset()
        if self._fork_server is None:
            self._fork_server = ForkServer()
        return self._fork_server

    @contextlib.contextmanager
    def lease(self, most: int) -> Iterator[list[ScorerProcess]]:
        """Yields between 1 and `most` workers for exclusive use, and returns them to the pool at the end."""
        with self._lock:
            while not self._free:
                self._lock.wait()
            count = min(len(self._free), most)
            slots, self._free = self._free[:count], self._free[count:]
        workers: list[ScorerProcess] = []
        try:
            for worker in slots:
                if worker is not None and worker.generation < len(self._built):
                    self._begun().end(worker)
                    worker = None
                workers.append(self.new() if worker is None else worker)
            yield workers
        finally:
            back: list[ScorerProcess | None] = [worker if not worker.pending else None for worker in workers]
            for worker in workers:
                if worker.pending:  # an exception interrupted the batch
                    self._begun().end(worker)
            with self._lock:
                self._free += back + [None] * (count - len(back))
                self._lock.notify_all()

    def new(self) -> ScorerProcess:
        """Forks a new worker; warns once about restrictions that this system lacks."""
        worker, missing = self._begun().fork(self.memory, len(self._built))
        if missing and not self._warned:
            self._warned = True
            warnings.warn(
                f"episodes.where = 'processes': on this system the processes of scorers are less confined: "
                f"{'; '.join(missing)}",
                PoloptWarning,
                stacklevel=2,
            )
        return worker

    def end(self, worker: ScorerProcess) -> str:
        """Kills a worker that has died or misbehaved, and returns the reason: "timeout" if it exceeded its processor
        time, else "died"."""
        died_of = self._begun().end(worker)
        return "timeout" if died_of == signal.SIGXCPU else "died"

    def close(self) -> None:
        """Ends all processes; the next request starts new ones."""
        with self._lock:
            if self._fork_server is not None:
                for worker in self._free:
                    if worker is not None:
                        worker.connection.close()
                self._fork_server.close()
            self._reset()

    def forget(self) -> None:
        """Drops the parent's workers in a forked child process without ending them; the child starts its own later."""
        self._lock = threading.Condition()
        if self._fork_server is not None:
            self._fork_server.control.close()
        self._reset()


class _Batch:
    """A batch of requests that a pool processes."""

    def __init__(self, pool: ScorerPool, requests: Sequence[Request]) -> None:
        self.pool = pool
        # By identity first: a batch has few scorers and few rows, each in many requests.
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
            while todo or any(worker.pending for worker in leased):
                for worker in leased:
                    if todo and not worker.pending:
                        self._send(worker, [todo.popleft() for _ in range(min(share, len(todo)))])
                        if worker.connection not in (key.fileobj for key in selector.get_map().values()):
                            selector.register(worker.connection, selectors.EVENT_READ, worker)
                self._receive(leased, selector, todo)
        return [verdict for verdict in self.verdicts if verdict is not None]

    def _send(self, worker: ScorerProcess, places: list[int]) -> None:
        rows = {id(self.items[i][1]): self.items[i][1] for i in places}
        number = {identity: n for n, identity in enumerate(rows)}
        queries = [(key, number[id(row)], answer) for key, row, answer in (self.items[i] for i in places)]
        data = marshal.dumps((self.pool.timeout, list(rows.values()), queries))
        worker.pending.extend(places)
        worker.give(self.pool.timeout, first=True)
        with contextlib.suppress(OSError):  # the worker has died, which `_read` finds
            worker.connection.sendall(LENGTH.pack(len(data)) + data)

    def _receive(self, leased: list[ScorerProcess], selector: selectors.BaseSelector, todo: deque[int]) -> None:
        """Processes the data that has arrived, and replaces workers that died or exceeded the time limit."""
        first = min(worker.deadline for worker in leased if worker.pending)
        ready = {key.data for key, _ in selector.select(max(0.0, first - time.monotonic()))}
        for place, worker in enumerate(leased):
            if worker in ready:
                fault = self._read(worker)
            else:
                fault = "timeout" if worker.pending and worker.late(self.pool.timeout) else None
            if fault is not None:
                selector.unregister(worker.connection)
                leased[place] = self._replaced(worker, fault, todo)

    def _read(self, worker: ScorerProcess) -> str | None:
        """Stores the verdicts that have arrived; returns the reason if the worker must be replaced, else None."""
        try:
            for line in worker.lines():
                if not worker.pending:
                    raise WorkerDied
                verdict = Verdict.read(line)
                if verdict.lost == "memory":
                    return "memory"
                self.verdicts[worker.pending.popleft()] = verdict
                worker.give(self.pool.timeout)
        except (WorkerDied, ValueError):
            return "died"
        return None

    def _replaced(self, worker: ScorerProcess, fault: str, todo: deque[int]) -> ScorerProcess:
        """Replaces a lost worker: the first of its pending answers is lost, the others are queued again."""
        cause = self.pool.end(worker)
        if worker.pending:
            self.verdicts[worker.pending.popleft()] = Verdict(lost=cause if fault == "died" else fault)
        todo.extendleft(reversed(worker.pending))
        worker.pending.clear()
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
