"""Waiting of the threads of one operation: busy while the machine is free, asleep while other programs need it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

# Variables with which a user overrides this.
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
TASKS = Path("/proc/self/task")
# Seconds between two measurements, and the shares of that time for which threads were ready but had no processor, above
# which threads sleep while they wait, and below which they no longer do. Alone on two cores the share is 0.01; beside
# one busy
# process it is 0.5 or more, whichever way threads wait.
INTERVAL_S, BUSY, IDLE = 0.25, 0.2, 0.05
# Operations on this many numbers are divided among threads.
SHARED = 2**20


@contextlib.contextmanager
def giving_way() -> Iterator[None]:
    """Makes threads that wait for each other sleep at once while other programs need the processors.

    A thread of GNU OpenMP, which torch's wheels for Linux bring, that waits for others looks for them 300,000 times,
    some milliseconds, before it sleeps. Beside a busy process the thread that is waited for has lost its processor,
    often to the one that looks: a decoding step has some hundred short operations and takes ten times its time.
    Looking less often is slower where the machine is free. GNU OpenMP looks 100 times only while a process has more
    threads than there are processors; so, as long as threads are kept from running, others are added that sleep.

    Results do not change: an operation is shared among as many threads as before. Of no effect on other systems, with
    one thread, or where the user has set GOMP_SPINCOUNT or OMP_WAIT_POLICY.
    """
    delay = _delay_reader()
    if delay is None or torch.get_num_threads() == 1 or any(name in os.environ for name in SETTINGS):
        yield
        return
    watch = _Watch(delay)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def _delay_reader() -> Callable[[], float] | None:
    """Returns a function that reads the seconds, summed over its threads, for which this process was ready but did not
    run; None where the system does not report them."""
    if sys.platform != "linux" or not (TASKS / str(os.getpid()) / "schedstat").exists():
        return None

    def read() -> float:
        nanoseconds = 0
        for task in os.listdir(TASKS):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                nanoseconds += int((TASKS / task / "schedstat").read_text().split()[1])
        return nanoseconds / 1e9

    return read


class _Watch(threading.Thread):
    """A thread that adds sleeping threads while this process is kept from running."""

    def __init__(self, delay: Callable[[], float]) -> None:
        super().__init__(name="polopt-giving-way", daemon=True)
        self.delay, self.over, self.sleepers = delay, threading.Event(), list[_Sleeper]()

    def run(self) -> None:
        delayed, begun = self.delay(), time.monotonic()
        while not self.over.wait(INTERVAL_S):
            before, since = delayed, begun
            delayed, begun = self.delay(), time.monotonic()
            self.adjust((delayed - before) / (begun - since))
        self.adjust(0.0)

    def adjust(self, delayed_fraction: float) -> None:
        """Adds or removes sleepers. share: of the time since the last call for which threads had no processor."""
        if delayed_fraction > BUSY and not self.sleepers:
            self.sleepers = [_Sleeper() for _ in range(_count(torch.get_num_threads(), os.cpu_count() or 1))]
            for sleeper in self.sleepers:
                sleeper.start()
        elif delayed_fraction < IDLE and self.sleepers:
            for sleeper in self.sleepers:
                sleeper.over.set()
            self.sleepers = []

    def stop(self) -> None:
        self.over.set()
        self.join()


def _count(threads: int, processors: int) -> int:
    """Computes how many callers of operations divided among `threads` make more threads than there are processors."""
    return max(0, processors - threads) // (threads - 1) + 1


class _Sleeper(threading.Thread):
    """A thread with an OpenMP team of its own, all asleep."""

    def __init__(self) -> None:
        super().__init__(name="polopt-asleep", daemon=True)
        self.over = threading.Event()

    def run(self) -> None:
        torch.ones(SHARED)  # starts the team
        self.over.wait()
