"""Timing of repeated work."""

from __future__ import annotations

import time
from collections.abc import Callable


def fastest(
    work: Callable[[], object],
    seconds: float = 0.4,
    settle: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of the fastest of the calls that fit in the time given. settle: waits until a device is done."""
    work()
    settle()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = clock()
        work()
        settle()
        best = min(best, clock() - start)
    return best
